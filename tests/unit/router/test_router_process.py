"""The life of a router: what its admin port says, how it drains, and that it ends well."""

import asyncio
import json
import os
import signal
from hashlib import sha256
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from support.router_process import process_of
from tokenpool_api.wire import RouterLoad
from tokenpool_router import series

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
    counts = router.desk.ledger.counts
    assert [counts.value(series.REQUESTS, code) for code in ("499", "503", "200")] == [1, 1, 0]
    assert counts.value(series.CANCELLED) == 1
    assert counts.value(series.REFUSED, "no_shard") == 1
    assert counts.value(series.TTFT) == 1


async def test_a_drain_serves_what_is_there_and_what_still_comes_and_ends_when_idle(router: Router) -> None:
    stream = Stream()
    await router.add(stream)
    reader, writer = await router.connect()
    writer.write(GET)
    await reader.readuntil(FIRST_EVENT)
    half_reader, half_writer = await router.connect()
    half_writer.write(GET[:10])
    idle_reader, idle_writer = await router.connect()
    while [connection._reader.head_bytes for connection in router.worker.connections].count(0) != 2:
        await asyncio.sleep(0)

    draining = asyncio.create_task(router.worker.drain(30))
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
    draining = asyncio.create_task(router.worker.drain(0))
    events, refused = await reader.read(), await waiting_reader.read()
    assert json.loads(events.split(b"data: ")[1].split(b"\n\n")[0])["error"]["code"] == "router_stopping"
    assert events.endswith(b"0\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1\r\n" in refused
    for open_writer in (writer, waiting_writer):
        open_writer.close()
    await asyncio.wait_for(draining, 5)
    assert not router.worker.connections


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists()


async def address_of(router: Router, script: Any) -> str:
    await router.add(script)
    address: str = router.desk.sharding.loads(now=0)[0].shard.address
    return address


async def test_the_admin_port_of_a_real_router(router: Router) -> None:
    address = await address_of(router, Stream())
    async with process_of("--shards", address, "--workers", "2") as process:
        assert await process.get("/healthz") == (200, "ok\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(FIRST_EVENT), 10)
        load = RouterLoad.model_validate_json((await process.get("/load"))[1])
        assert (load.workers, [shard.in_flight_requests for shard in load.shards]) == (2, [1])
        assert json.loads((await process.get("/roster"))[1])["shards"] == {address: {"weight": 1.0, "draining": False}}
        # Workers write what they have to the shared table some milliseconds later.
        text = await process.until("/metrics", lambda _, text: f'in_flight_requests{{shard="{address}"}} 1.0' in text)
        found = {family.name: family for family in text_string_to_metric_families(text)}
        assert found["tokenpool_router_workers"].samples[0].value == 2
        assert {one.name for one in series.ALL} <= set(found)
        assert json.loads((await process.get("/numbers"))[1])["shards"][address][1] == 1
        writer.close()


async def test_a_worker_that_dies_is_replaced_and_what_it_counted_stays(router: Router) -> None:
    async def answer(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

    async with process_of("--shards", await address_of(router, answer)) as process:
        url = f"http://127.0.0.1:{process.port}/x"
        counted = 'tokenpool_router_requests_total{code="200"}'
        for restarts, total in enumerate(("1.0", "2.0"), 1):
            async with process.session.get(url) as response:
                assert await response.text() == "hi"
            await process.until("/metrics", lambda _, text, total=total: f"{counted} {total}" in text)  # type: ignore[misc]
            [worker] = process.workers()
            os.kill(worker, signal.SIGKILL)
            ended = f"tokenpool_router_worker_restarts_total {restarts}.0"
            await process.until("/metrics", lambda _, text, ended=ended: ended in text)  # type: ignore[misc]
            await process.until("/readyz", lambda status, _: status == 200)
        assert f"{counted} 2.0" in (await process.get("/metrics"))[1]


async def test_workers_end_with_the_process_that_tells_them(router: Router) -> None:
    async with process_of("--shards", await address_of(router, Stream()), "--workers", "2") as process:
        workers = process.workers()
        assert len(workers) == 2
        process.process.kill()
        await process.process.wait()
        async with asyncio.timeout(10):
            while any(map(is_alive, workers)):
                await asyncio.sleep(0.05)


async def test_sigterm_ends_a_real_process_after_its_last_answer(router: Router) -> None:
    stream = Stream()
    async with process_of("--shards", await address_of(router, stream)) as process:
        reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(FIRST_EVENT), 10)
        process.process.send_signal(signal.SIGTERM)
        assert await process.until("/readyz", lambda status, _: status == 503) == "draining\n"
        stream.go.set()
        assert (await asyncio.wait_for(reader.read(), 10)) == b"0\r\n\r\n"
        writer.close()
        assert await asyncio.wait_for(process.process.wait(), 10) == 0
    assert len(router.shards[0].requests) == 1


async def test_keys_are_read_from_the_folder_and_read_again_when_they_change(router: Router, tmp_path: Path) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        assert b"authorization" not in request.lower()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

    async with process_of("--shards", await address_of(router, answer), "--keys-dir", str(tmp_path)) as process:
        url = f"http://127.0.0.1:{process.port}/x"

        async def status_of(key: str) -> int:
            async with process.session.get(url, headers={"authorization": f"Bearer {key}"}) as response:
                return response.status

        assert await status_of("one") == 401, "nobody is let in where nobody is known"
        (tmp_path / "team").write_text(sha256(b"one").hexdigest())
        async with asyncio.timeout(10):
            while await status_of("one") != 200:
                await asyncio.sleep(0.1)
        assert await status_of("two") == 401
        (tmp_path / "team").write_text(sha256(b"two").hexdigest())
        async with asyncio.timeout(10):
            while await status_of("two") != 200:
                await asyncio.sleep(0.1)
        assert await status_of("one") == 401
        assert 'tokenpool_router_caller_requests_total{caller="team"}' in (await process.get("/metrics"))[1]
