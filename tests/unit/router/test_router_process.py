"""The life of a router: what its admin port says, how it drains, and that it ends well."""

import asyncio
import json
import signal
import sys
from typing import Any

import aiohttp
from aiohttp.test_utils import TestClient, TestServer

from tokenpool_api.wire import RouterLoad, RouterShardLoad
from tokenpool_router import admin
from tokenpool_router.sharding import Shard
from tokenpool_router.process import drain

EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST_EVENT = b"9\r\ndata: 1\n\n\r\n"
GET = b"GET /x HTTP/1.1\r\nhost: p\r\n\r\n"

Router = Any


class Stream:
    """A script that sends one event, and the end when told so."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + FIRST_EVENT)
        await self.go.wait()
        writer.write(b"0\r\n\r\n")


async def test_admin_port(router: Router) -> None:
    state = router.state
    async with TestClient(TestServer(admin.application(state))) as client:

        async def get(path: str) -> tuple[int, str]:
            async with client.get(path) as response:
                return response.status, await response.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, "waiting for the list of shards\n")
        state.set_members([])
        assert await get("/readyz") == (200, "ok\n")
        state.set_members([Shard("a", "a:1"), Shard("b", "b:1")])
        lease = state.balancer.acquire(7, now=0.0)
        state.balancer.failed("b", now=asyncio.get_running_loop().time())
        assert lease
        assert RouterLoad.model_validate_json((await get("/load"))[1]) == RouterLoad(
            queued_requests=0,
            queued_tokens=0,
            shards=(
                RouterShardLoad(name="a", address="a:1", outstanding_tokens=7, in_flight_requests=1, ejected=False),
                RouterShardLoad(name="b", address="b:1", outstanding_tokens=0, in_flight_requests=0, ejected=True),
            ),
        )
        assert "tokenpool_router_shards 2.0" in (await get("/metrics"))[1]
        state.draining = True
        assert await get("/readyz") == (503, "draining\n")


async def test_requests_are_counted_by_what_became_of_them(router: Router) -> None:
    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + FIRST_EVENT)

    [shard] = await router.add(script)
    reader, writer = await router.connect()
    writer.write(GET)
    await reader.readuntil(FIRST_EVENT)
    writer.close()
    await asyncio.wait_for(shard.lost.wait(), 5)
    router.desk.set_shards([])
    assert b"HTTP/1.1 503" in await router.post()

    def count(code: str) -> Any:
        return router.state.metrics.registry.get_sample_value("tokenpool_router_requests_total", {"code": code})

    assert (count("cancelled"), count("503"), count("200")) == (1, 1, None)


async def test_a_drain_serves_what_is_there_and_what_still_comes_and_ends_when_idle(router: Router) -> None:
    stream = Stream()
    await router.add(stream)
    reader, writer = await router.connect()
    writer.write(GET)
    await reader.readuntil(FIRST_EVENT)
    half_reader, half_writer = await router.connect()
    half_writer.write(GET[:10])
    idle_reader, idle_writer = await router.connect()
    while [connection._head_bytes for connection in router.worker.connections].count(0) != 2:
        await asyncio.sleep(0)

    draining = asyncio.create_task(drain(router.state, router.server, 30))
    assert await asyncio.wait_for(idle_reader.read(), 5) == b""
    late_reader, late_writer = await router.connect()
    late_writer.write(GET)
    half_writer.write(GET[10:])
    for waiting in (late_reader, half_reader):
        assert b"connection: close" in await asyncio.wait_for(waiting.readuntil(FIRST_EVENT), 5)
    assert not draining.done()
    stream.go.set()
    for open_reader in (reader, late_reader, half_reader):
        assert (await asyncio.wait_for(open_reader.read(), 5)).endswith(b"0\r\n\r\n")
    for open_writer in (writer, half_writer, idle_writer, late_writer):
        open_writer.close()
    await asyncio.wait_for(draining, 5)
    assert not router.worker.connections


async def test_what_outlasts_the_drain_is_told_so(router: Router) -> None:
    await router.add(Stream())
    reader, writer = await router.connect()
    writer.write(GET)
    await reader.readuntil(FIRST_EVENT)
    router.desk.set_shards([])
    waiting_reader, waiting_writer = await router.connect()
    waiting_writer.write(GET)
    while not router.desk.waiting:
        await asyncio.sleep(0)
    draining = asyncio.create_task(drain(router.state, router.server, 0))
    events, refused = await reader.read(), await waiting_reader.read()
    assert json.loads(events.split(b"data: ")[1].split(b"\n\n")[0])["error"]["code"] == "router_stopping"
    assert events.endswith(b"0\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1\r\n" in refused
    for open_writer in (writer, waiting_writer):
        open_writer.close()
    await asyncio.wait_for(draining, 5)
    assert not router.worker.connections


async def test_sigterm_ends_a_real_process_after_its_last_answer(router: Router) -> None:
    stream = Stream()
    [shard] = await router.add(stream)
    address = router.desk.sharding.loads(now=0)[0].shard.address
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tokenpool_router", "--shards", address, "--host", "127.0.0.1",
        "--port", "0", "--admin-port", "0", stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    words = (await asyncio.wait_for(process.stderr.readuntil(b"\n"), 30)).decode().replace(",", "").split()
    port, admin_port = (int(word) for word in words if word.isdecimal())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET)
    await asyncio.wait_for(reader.readuntil(FIRST_EVENT), 10)
    process.send_signal(signal.SIGTERM)
    assert b"draining" in await asyncio.wait_for(process.stderr.readuntil(b"\n"), 10)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{admin_port}/readyz") as response,
    ):
        assert response.status == 503
    stream.go.set()
    assert (await asyncio.wait_for(reader.read(), 10)) == b"0\r\n\r\n"
    writer.close()
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert len(shard.requests) == 1
