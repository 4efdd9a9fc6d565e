"""Two whole routers of one pool and a real Redis: each reckons with what the other has, and neither needs it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from support.redis_server import RedisServer
from support.router_process import RouterProcess, process_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-tokenpool-prompt-tokens: 50\r\n\r\n"
BODY = json.dumps({"prompt": "x" * 200, "max_tokens": 300, "stream": True}).encode()


class Shards:
    """Two shards that begin to answer and never end."""

    def __init__(self) -> None:
        self.asked = [0, 0]
        self._servers: list[asyncio.Server] = []
        self.addresses = ""

    async def start(self) -> None:
        for number in range(2):

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int = number) -> None:
                with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                    await reader.readuntil(b"\r\n\r\n")
                    self.asked[number] += 1
                    writer.write(HEAD + b":1\ndata: {}\n\n")
                    await reader.read(1 << 16)
                    await reader.read()
                writer.close()

            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        self.addresses = ",".join(f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in self._servers)

    def stop(self) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
async def shards() -> AsyncIterator[Shards]:
    made = Shards()
    await made.start()
    yield made
    made.stop()


class Clients:
    """Clients that begin a stream and leave it open until the end of the test, or until they are told to leave."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []

    async def stream(self, router: RouterProcess, key: str = "") -> int:
        """The status that one more gets."""
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
        self.writers.append(writer)
        lines = b"authorization: Bearer %b\r\n" % key.encode() if key else b""
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: p\r\n%bcontent-length: %d\r\n\r\n" % (lines, len(BODY)))
        writer.write(BODY)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        return int(head.split()[1])

    async def leave(self) -> None:
        """All of them."""
        for writer in self.writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        self.writers.clear()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    made = Clients()
    yield made
    await made.leave()


async def connected(router: RouterProcess) -> None:
    await router.until("/metrics", lambda _, text: "tokenpool_router_redis_routers 1.0" in text)


def flags_of(shards: Shards, url_file: Path, *more: str) -> list[str]:
    return ["--shards", shards.addresses, "--redis-url-file", str(url_file), *more]


async def test_what_the_other_router_has_is_load_too(
    redis_server: RedisServer, url_file: Path, shards: Shards, clients: Clients
) -> None:
    flags = flags_of(shards, url_file)
    async with (
        process_of(*flags, environment={"POD_NAME": "r-1"}) as one,
        process_of(*flags, environment={"POD_NAME": "r-2"}) as two,
    ):
        await connected(one)
        await connected(two)
        for _ in range(3):
            assert await clients.stream(one) == 200
        assert sorted(shards.asked) == [1, 2]
        # Who was idle tells and hears once a second; the workers look ten times as often.
        await asyncio.sleep(3)
        assert await clients.stream(two) == 200
        assert shards.asked == [2, 2], "the second router knows where the first one has less"
        redis_server.pause()
        for _ in range(4):
            assert await asyncio.wait_for(clients.stream(two), 2) == 200, "a silent Redis is no matter to requests"
        redis_server.resume()
        await clients.leave()


async def test_a_quota_holds_for_both_routers_together(
    url_file: Path, shards: Shards, clients: Clients, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "team").write_text(json.dumps({"sha256": sha256(b"key").hexdigest(), "concurrency": 2}))
    flags = flags_of(shards, url_file, "--keys-dir", str(keys))

    async def until(router: RouterProcess, wanted: int) -> None:
        """Ask until the answer is this one; whoever was let in meanwhile leaves again."""
        others = Clients()
        async with asyncio.timeout(15):
            while await others.stream(router, "key") != wanted:
                await others.leave()
                await asyncio.sleep(0.2)
        await others.leave()

    async with (
        process_of(*flags, environment={"POD_NAME": "r-1"}) as one,
        process_of(*flags, environment={"POD_NAME": "r-2"}) as two,
    ):
        await connected(one)
        await connected(two)
        await until(one, 200)
        for wanted in (200, 200, 429):
            assert await clients.stream(one, "key") == wanted
        await until(two, 429)
        await clients.leave()
        await until(two, 200)
