"""A router on loopback in front of scripted fake shards."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tokenpool_router.journey import desk
from tokenpool_router.journey.desk import Desk
from tokenpool_router.settings import parse
from tokenpool_router.sharding import Shard
from tokenpool_router.worker.worker import Worker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same tests run on the compiled router, but for those that put something else into its place."""
    if (desk.__file__ or "").endswith(".so"):
        for item in items:
            if item.get_closest_marker("interpreted"):
                item.add_marker(pytest.mark.skip(reason="reaches into sources, and this router is compiled"))


Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class FakeShard:
    """A scripted server: `script` answers each request; it is no engine and parses no more than the framing."""

    script: Script
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client of ours closed its connection."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                request = await read_message(reader)
                self.requests.append(request)
                await self.script(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            self.lost.set()
        finally:
            self._writers.discard(writer)
            writer.close()


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """One HTTP message with a length, or without a body."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


class Router:
    """One worker of the router under test, in this process."""

    def __init__(self, worker: Worker, port: int) -> None:
        self.worker, self.port = worker, port
        self.shards: list[FakeShard] = []

    @property
    def desk(self) -> Desk:
        return self.worker.desk

    async def add(self, *scripts: Script) -> list[FakeShard]:
        """Fake shards behind it: shard-0, shard-1, …"""
        added = [FakeShard(script) for script in scripts]
        self.shards += added
        self.desk.set_shards([Shard(f"shard-{n}", await shard.start()) for n, shard in enumerate(added)])
        return added

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, raw: bytes) -> bytes:
        """Send on a fresh connection, and read until the router closes it."""
        reader, writer = await self.connect()
        writer.write(raw)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    async def post(self, body: bytes = b'{"max_tokens": 5}', extra: bytes = b"") -> bytes:
        """A POST whose connection is closed after the answer."""
        head = b"POST /v1/completions HTTP/1.1\r\nhost: pool\r\nconnection: close\r\n"
        return await self.send(head + extra + b"content-length: %d\r\n\r\n" % len(body) + body)


@asynccontextmanager
async def running(*flags: str) -> AsyncIterator[Router]:
    settings = parse(["--shards", "none:1", "--port", "0", "--host", "127.0.0.1", "--queue-seconds", "0.2",
                      "--queue-tokens", "1000", "--connect-seconds", "1", *flags])  # fmt: skip
    worker = Worker(settings)
    made = Router(worker, await worker.listen())
    yield made
    await worker.close()
    for shard in made.shards:
        await shard.stop()


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    async with running() as made:
        yield made


@pytest.fixture
async def router_with() -> AsyncIterator[Callable[..., Awaitable[Router]]]:
    """Makes a router that is started with these flags too."""
    async with AsyncExitStack() as stack:
        yield lambda *flags: stack.enter_async_context(running(*flags))
