"""How a router's processes begin and end: what keeps it from starting, signals, workers that hang, the last spans."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.router_process import RouterProcess, failing, process_of

FIRST_EVENT = b"9\r\ndata: 1\n\n\r\n"
GET = b"GET /x HTTP/1.1\r\nhost: p\r\n\r\n"
TRACE = "0af7651916cd43dd8448eb211c80319c"

Router = Any


class Stream:
    """A shard's script: one event, and the end when told so."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(FIRST_EVENT)
        await self.go.wait()
        writer.write(b"0\r\n\r\n")


async def address_of(router: Router, script: Any) -> str:
    await router.add(script)
    address: str = router.desk.sharding.loads(now=0)[0].shard.address
    return address


@asynccontextmanager
async def streaming(process: RouterProcess, extra: bytes = b"") -> AsyncIterator[asyncio.StreamReader]:
    """A client whose answer has begun."""
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    writer.write(GET.replace(b"\r\n\r\n", b"\r\n" + extra + b"\r\n"))
    await asyncio.wait_for(reader.readuntil(FIRST_EVENT), 10)
    yield reader
    writer.close()


@pytest.mark.parametrize("flag", ["--port", "--admin-port"])
async def test_a_port_that_is_taken_is_an_error_at_once(flag: str) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = str(taken.sockets[0].getsockname()[1])
    other = "--admin-port" if flag == "--port" else "--port"
    code, said = await failing("--shards", "127.0.0.1:9", other, "0", flag, port)
    assert (code, said.count("Traceback")) == (1, 0)
    assert f"error: cannot listen on 127.0.0.1 port {port}: Address already in use" in said
    taken.close()


async def test_two_routers_do_not_share_a_port_unnoticed(router: Router) -> None:
    async with process_of("--shards", await address_of(router, Stream())) as process:
        port = str(process.port)
        code, said = await failing("--shards", "127.0.0.1:9", "--admin-port", "0", "--port", port)
        assert code == 1
        assert f"cannot listen on 127.0.0.1 port {port}" in said


async def test_no_way_to_the_cluster_is_an_error_at_once(tmp_path: Path) -> None:
    nowhere = {"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    ports = ("--port", "0", "--admin-port", "0")
    code, said = await failing("--pool", "p", "--namespace", "n", *ports, environment=nowhere)
    assert code == 1
    assert "error: no way to the API server" in said
    assert "Traceback" not in said


async def test_a_terminals_interrupt_reaches_all_processes_and_the_workers_finish_all_the_same(router: Router) -> None:
    stream = Stream()
    async with process_of("--shards", await address_of(router, stream), "--workers", "2") as process:
        async with streaming(process) as reader:
            os.killpg(process.process.pid, signal.SIGINT)
            await process.until("/readyz", lambda status, _: status == 503)
            stream.go.set()
            assert await asyncio.wait_for(reader.read(), 10) == b"0\r\n\r\n"
        assert await asyncio.wait_for(process.process.wait(), 10) == 0
        assert process.process.stderr
        assert b"starting another" not in await process.process.stderr.read()


async def test_who_is_told_twice_ends_at_once(router: Router) -> None:
    async with process_of("--shards", await address_of(router, Stream())) as process, streaming(process):
        process.process.send_signal(signal.SIGTERM)
        await process.until("/readyz", lambda status, _: status == 503)
        process.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.process.wait(), 10) == 0


async def test_a_worker_that_hangs_is_still_seen_and_still_served_around(router: Router) -> None:
    stream = Stream()
    flags = ("--shards", await address_of(router, stream), "--workers", "2")
    async with process_of(*flags) as process, streaming(process) as reader:
        await process.until("/load", lambda _, text: json.loads(text)["shards"][0]["inFlightRequests"] == 1)
        workers = process.workers()
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        load = json.loads((await process.get("/load"))[1])
        assert (load["workers"], load["shards"][0]["inFlightRequests"]) == (2, 1), "work does not vanish"
        assert (await process.get("/readyz"))[0] == 200
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        stream.go.set()
        assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 10)


async def test_spans_reach_a_collector_also_the_last_ones(router: Router) -> None:
    spans: list[Any] = []
    arrived = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        told = ExportTraceServiceRequest.FromString(await request.read())
        for resource in told.resource_spans:
            spans.extend(span for scope in resource.scope_spans for span in scope.spans)
        arrived.set()
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{runner.addresses[0][1]}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    stream = Stream()
    async with process_of("--shards", await address_of(router, stream), environment=environment) as process:
        async with streaming(process, f"traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n".encode()) as reader:
            process.process.send_signal(signal.SIGTERM)
            await process.until("/readyz", lambda status, _: status == 503)
            stream.go.set()
            await asyncio.wait_for(reader.read(), 10)
        await asyncio.wait_for(arrived.wait(), 10)
        assert await asyncio.wait_for(process.process.wait(), 10) == 0
    [span] = spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    attributes = {pair.key: pair.value for pair in span.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    await runner.cleanup()


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "not-a-url"])
async def test_a_collector_that_is_away_costs_no_more_than_spans(router: Router, endpoint: str) -> None:
    stream = Stream()
    stream.go.set()
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    async with process_of("--shards", await address_of(router, stream), environment=environment) as process:
        async with streaming(process):
            pass
        assert process.process.stderr
        async with asyncio.timeout(20):
            line = b""
            while b"retrying" not in line and b"not taken" not in line:
                line = await process.process.stderr.readline()
        process.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.process.wait(), 10) == 0


def test_a_router_without_kubernetes_carries_none_of_it() -> None:
    """They are half of the control process's memory."""
    check = "import sys, tokenpool_router.__main__; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    told = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert {"tokenpool_router", "aiohttp"} <= set(told.stdout.split())
    assert not {"kubernetes", "pydantic", "redis", "opentelemetry", "yaml"} & set(told.stdout.split())
