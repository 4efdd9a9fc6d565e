"""The way of a request through the router, over real sockets, in front of fake shards that behave and misbehave."""

import asyncio
import json
from typing import Any

import pytest

from tokenpool_router.sharding import DynamicSharding, Shard

OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n{"text": "hi"}'
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy"
DRAINING = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\nconnection: close\r\n\r\ndrain"
GET = b"GET /v1/models HTTP/1.1\r\nhost: pool\r\nconnection: close\r\n\r\n"

Router = Any


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def says(data: bytes, *, then_close: bool = False) -> Any:
    """A script that always answers the same."""

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if then_close:
            await writer.drain()
            writer.transport.abort() if not data else writer.close()

    return script


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def headers(answer: bytes) -> dict[bytes, bytes]:
    lines = answer.split(b"\r\n\r\n", 1)[0].split(b"\r\n")[1:]
    return {name.lower(): value for name, value in (line.split(b": ", 1) for line in lines)}


def body(answer: bytes) -> bytes:
    """The body, its chunks joined; a chunked body has to end properly."""
    raw = answer.split(b"\r\n\r\n", 1)[1]
    if headers(answer).get(b"transfer-encoding") != b"chunked":
        return raw
    whole = b""
    while True:
        size, raw = raw.split(b"\r\n", 1)
        length = int(size, 16)
        if length == 0:
            assert raw == b"\r\n"
            return whole
        whole, raw = whole + raw[:length], raw[length + 2 :]


def error(answer: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body(answer))["error"]
    return found


async def test_an_answer_passes_through_with_shard_and_request_id(router: Router) -> None:
    [shard] = await router.add(says(OK))
    extra = b"X-Request-Id: mine\r\nAuthorization: Bearer k\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
    answer = await router.post(b'{"a": 1}', extra=extra)
    assert (status(answer), body(answer)) == (200, b'{"text": "hi"}')
    assert headers(answer)[b"x-tokenpool-shard"] == b"shard-0"
    assert headers(answer)[b"x-request-id"] == b"mine"
    [request] = shard.requests
    assert request.endswith(b'\r\n\r\n{"a": 1}')
    assert b"x-request-id: mine\r\n" in request
    assert b"authorization: Bearer k\r\n" in request
    assert b"connection" not in request.lower()
    assert b"x-hop" not in request


async def test_a_stream_passes_event_by_event(router: Router) -> None:
    go = asyncio.Event()

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b"data: 1\n\n"))
        await go.wait()
        writer.write(chunk(b"data: 2\n\ndata: [DO") + chunk(b"NE]\n\n") + b"0\r\n\r\n")

    await router.add(script)
    reader, writer = await router.connect()
    writer.write(GET)
    first = await asyncio.wait_for(reader.readuntil(b"data: 1\n\n"), 5)
    assert status(first) == 200
    go.set()
    assert body(first + await reader.read()) == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    writer.close()


async def test_load_falls_as_tokens_stream_and_to_zero_at_the_end(router: Router) -> None:
    go = asyncio.Event()

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b"data: 1\n\n" * 3))
        await go.wait()
        writer.write(b"0\r\n\r\n")

    await router.add(script)
    reader, writer = await router.connect()
    text = b'{"max_tokens": 50}'
    writer.write(b"POST /x HTTP/1.1\r\nhost: p\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
    await reader.readuntil(b"data: 1\n\n" * 3)
    now = asyncio.get_running_loop().time()
    assert router.desk.sharding.load("shard-0", now=now).outstanding_tokens == 50 - 3, "the prompt is computed"
    go.set()
    await reader.readuntil(b"0\r\n\r\n")
    assert router.desk.sharding.load("shard-0", now=now).outstanding_tokens == 0
    writer.close()


@pytest.mark.parametrize(
    "bad",
    [
        says(b"", then_close=True),
        says(EVENTS_HEAD, then_close=True),
        says(OK[:-5], then_close=True),
        says(DRAINING),
        says(BUSY),
        says(b"nonsense\r\n\r\n"),
    ],
    ids=["reset", "no content", "half an answer", "503", "429", "no HTTP"],
)
async def test_before_content_another_shard_takes_over_unseen(router: Router, bad: Any) -> None:
    first, second = await router.add(bad, says(OK))
    answer = await router.post()
    assert (status(answer), headers(answer)[b"x-tokenpool-shard"]) == (200, b"shard-1")
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_shard_that_cannot_be_reached_is_left_out(router: Router) -> None:
    [shard] = await router.add(says(OK))
    address = router.desk.sharding.loads(now=0)[0].shard.address
    router.desk.set_shards([Shard("dead", "127.0.0.1:1"), Shard("live", address)])
    for _ in range(3):
        assert headers(await router.post())[b"x-tokenpool-shard"] == b"live"
    assert len(shard.requests) == 3


async def test_a_shards_own_429_is_passed_on_when_nobody_else_can(router: Router) -> None:
    await router.add(says(BUSY), says(BUSY))
    answer = await router.post()
    assert (status(answer), body(answer), headers(answer)[b"retry-after"]) == (429, b"busy", b"7")


async def test_after_content_a_lost_shard_is_an_error_event_and_never_done(router: Router) -> None:
    lost = says(EVENTS_HEAD + chunk(b"data: 1\n\ndata: hal"), then_close=True)
    _, second = await router.add(lost, says(OK))
    answer = await router.post()
    events = body(answer).split(b"\n\n")
    assert events[0] == b"data: 1"
    assert json.loads(events[1].removeprefix(b"data: "))["error"]["code"] == "shard_lost"
    assert events[2:] == [b""]
    assert headers(answer)[b"connection"] == b"close"
    assert second.requests == []


async def test_a_client_that_leaves_takes_its_request_with_it(router: Router) -> None:
    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b"data: 1\n\n"))

    [shard] = await router.add(script)
    reader, writer = await router.connect()
    writer.write(GET)
    await reader.readuntil(b"data: 1\n\n")
    writer.close()
    await asyncio.wait_for(shard.lost.wait(), 5)
    assert router.desk.sharding.load("shard-0", now=0).in_flight == 0


async def test_a_slow_client_slows_the_shard_and_nothing_piles_up(router: Router) -> None:
    written = 0
    full = asyncio.Event()

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(EVENTS_HEAD)
        for _ in range(400):
            writer.write(chunk(b"data: " + b"x" * 100_000 + b"\n\n"))
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                full.set()
                await writer.drain()
            written += 100_000
        writer.write(b"0\r\n\r\n")

    await router.add(script)
    reader, writer = await router.connect()
    writer.write(GET)
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.wait_for(full.wait(), 10)
    assert written < 30_000_000
    rest = await asyncio.wait_for(reader.read(), 20)
    assert rest.count(b"data: ") == 400
    writer.close()


async def test_without_shards_a_request_waits_and_is_then_refused_with_a_time(router: Router) -> None:
    router.desk.set_shards([])
    answer = await router.post()
    assert (status(answer), error(answer)["code"]) == (503, "no_shard")
    assert int(headers(answer)[b"retry-after"]) > 0


async def test_a_waiting_request_is_served_by_the_shard_that_comes(router: Router) -> None:
    router.desk.set_shards([])
    waiting = asyncio.create_task(router.post())
    while not router.desk.waiting:
        await asyncio.sleep(0)
    await router.add(says(OK))
    assert status(await waiting) == 200


async def test_a_refused_request_waits_for_another_shard_and_holds_up_nobody(router: Router) -> None:
    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(DRAINING if b"/refused" in request else OK)

    await router.add(script)
    refused = asyncio.create_task(router.send(b"GET /refused HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n"))
    while not router.desk.waiting:
        await asyncio.sleep(0)
    assert status(await router.post()) == 200
    assert router.desk.waiting == 1, "the other one still waits"
    await router.add(says(OK))
    assert status(await refused) == 200


async def test_a_client_that_leaves_the_queue_leaves_nothing(router_with: Any) -> None:
    router = await router_with("--queue-seconds", "60")
    router.desk.set_shards([])
    _, writer = await router.connect()
    writer.write(GET)
    while not router.desk.waiting:
        await asyncio.sleep(0)
    writer.close()
    while router.desk.waiting:
        await asyncio.sleep(0)
    [shard] = await router.add(says(OK))
    assert (router.desk.queue.tokens, shard.requests) == (0, [])


async def test_who_answers_503_rests_so_that_not_everybody_goes_there_first(router: Router) -> None:
    first, second = await router.add(says(DRAINING), says(OK))
    for _ in range(4):
        assert status(await router.post()) == 200
    assert (len(first.requests), len(second.requests)) == (1, 4)


async def test_events_may_end_in_either_newline(router: Router) -> None:
    go = asyncio.Event()

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b"data: 1\r\n\r\ndata: half"))
        await go.wait()
        writer.transport.abort()

    await router.add(script)
    reader, writer = await router.connect()
    writer.write(GET)
    first = await asyncio.wait_for(reader.readuntil(b"data: 1\r\n\r\n"), 5)
    go.set()
    rest = body(first + await reader.read())
    assert rest.startswith(b'data: 1\r\n\r\ndata: {"error":')
    assert b"half" not in rest
    writer.close()


async def test_an_event_too_long_to_hold_back_passes_as_bytes(router: Router) -> None:
    event = b"data: " + b"x" * (3 << 20) + b"\n\n"
    await router.add(says(EVENTS_HEAD + chunk(event) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"))
    assert body(await router.post()) == event + b"data: [DONE]\n\n"


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
async def test_a_shard_lost_where_no_event_can_tell_is_a_broken_connection(
    router: Router, version: bytes, kind: bytes
) -> None:
    go = asyncio.Event()

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind
        writer.write(head + chunk(b"data: " + b"x" * (2 << 20)))
        await go.wait()
        writer.transport.abort()

    await router.add(script)
    reader, writer = await router.connect()
    writer.write(GET.replace(b"1.1", version))
    await asyncio.wait_for(reader.readexactly(1 << 20), 5)
    go.set()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()


@pytest.mark.interpreted
async def test_a_bug_is_a_500_and_told_once(
    router: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await router.add(says(OK))
    monkeypatch.setattr(DynamicSharding, "assign_shard", lambda *_, **__: 1 / 0)
    answer = await router.post()
    assert (status(answer), error(answer)["code"]) == (500, "internal_error")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
    assert not router.desk.journeys


async def test_the_replacement_of_a_dead_shard_under_the_same_name_is_a_new_shard(router: Router) -> None:
    router.desk.set_shards([Shard("shard-0", "127.0.0.1:1")])
    waiting = asyncio.create_task(router.post())
    while not router.desk.waiting:
        await asyncio.sleep(0)
    await router.add(says(OK))
    assert status(await waiting) == 200


async def test_the_waiting_room_is_bounded(router: Router) -> None:
    router.desk.set_shards([])
    answer = await router.post(b'{"prompt": "%b"}' % (b"x" * 8000))
    assert (status(answer), error(answer)["code"]) == (503, "queue_full")


async def test_a_chunked_request_arrives_whole(router: Router) -> None:
    [shard] = await router.add(says(OK))
    head = b"POST /x HTTP/1.1\r\nhost: p\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = await router.send(head + chunk(b'{"a"') + chunk(b": 1}") + b"0\r\n\r\n")
    assert status(answer) == 200
    assert shard.requests[0].endswith(b'content-length: 8\r\n\r\n{"a": 1}')


async def test_expect_continue(router: Router) -> None:
    await router.add(says(OK))
    reader, writer = await router.connect()
    writer.write(b"POST /x HTTP/1.1\r\nhost: p\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert status(await reader.readuntil(b'"hi"')) == 200
    writer.close()


async def test_the_ask_for_a_body_waits_for_the_answer_before_it(router: Router) -> None:
    go = asyncio.Event()

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        if request.startswith(b"POST"):
            writer.write(OK)
            return
        writer.write(EVENTS_HEAD + chunk(b"data: 1\n\n"))
        await go.wait()
        writer.write(b"0\r\n\r\n")

    await router.add(script)
    reader, writer = await router.connect()
    writer.write(b"GET /x HTTP/1.1\r\nhost: p\r\n\r\n")
    await reader.readuntil(b"data: 1\n\n\r\n")
    writer.write(b"POST /x HTTP/1.1\r\nhost: p\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    [connection] = router.worker.connections
    while not connection._owes_continue:
        await asyncio.sleep(0)
    go.set()
    expected = b"0\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    assert await asyncio.wait_for(reader.readexactly(len(expected)), 5) == expected
    writer.write(b"{}")
    assert status(await asyncio.wait_for(reader.readuntil(b'"hi"'), 5)) == 200
    writer.close()


async def test_head_has_headers_only_and_old_clients_get_no_chunks(router: Router) -> None:
    await router.add(says(EVENTS_HEAD + chunk(b"data: 1\n\n") + b"0\r\n\r\n"))
    answer = await router.send(b"GET /x HTTP/1.0\r\n\r\n")
    assert (status(answer), body(answer)) == (200, b"data: 1\n\n")
    assert b"transfer-encoding" not in headers(answer)
    await router.add(says(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n"))
    answer = await router.send(b"HEAD /x HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n")
    assert (status(answer), body(answer), headers(answer)[b"content-length"]) == (200, b"", b"13")


async def test_connections_are_reused_on_both_sides_and_pipelined_requests_stay_in_order(router: Router) -> None:
    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        path = request.split(b" ", 2)[1]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(path), path))

    [shard] = await router.add(script)
    reader, writer = await router.connect()
    writer.write(b"".join(b"GET /%d HTTP/1.1\r\nhost: p\r\n\r\n" % number for number in range(20)))
    for number in range(20):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n/%d" % number), 5)
    assert shard.connections == 1
    writer.close()


async def test_a_kept_connection_that_died_gets_a_fresh_one_on_the_same_shard(router: Router) -> None:
    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        if shard.connections == 1 and len(shard.requests) == 2:
            writer.transport.abort()
            return
        writer.write(OK)

    [shard] = await router.add(script)
    assert status(await router.post()) == 200
    assert status(await router.post()) == 200
    assert shard.connections == 2
    assert router.desk.sharding.load("shard-0", now=0).ejected is False


@pytest.mark.parametrize(
    ("raw", "wanted", "code"),
    [
        (b"GARBAGE\r\n\r\n", 400, "bad_request"),
        (b"GET /x HTTP/1.1\r\nx: " + b"h" * 70_000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET /x HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n", 431, "headers_too_large"),
        (b"GET /" + b"x" * 70_000, 431, "headers_too_large"),
        (b"POST /x HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n", 413, "body_too_large"),
        (b"POST /x HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400, "bad_request"),
        (b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400, "bad_request"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431, "headers_too_large"),
        (b"GET /x\r\n\r\n", 400, "bad_request"),
        (b"GET /x HTTP/3.7\r\n\r\n", 400, "bad_request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "bad_request"),
        (b"GET /x y HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"GET /x HTTP/1.1\r\nhost : p\r\n\r\n", 400, "bad_request"),
        (b"GET /x HTTP/1.1\r\nx: a\r\n b\r\n\r\n", 400, "bad_request"),
        (b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n", 400, "bad_request"),
        (b"POST /x HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"),
    ],
    ids=[
        "garbage",
        "long header",
        "many headers",
        "long target",
        "huge body",
        "negative",
        "two lengths",
        "long target, whole",
        "HTTP/0.9",
        "HTTP/3.7",
        "HTTP/2",
        "TLS",
        "space in target",
        "space before colon",
        "folded header",
        "two framings",
        "unknown framing",
    ],
)
async def test_what_is_refused_before_any_work(router: Router, raw: bytes, wanted: int, code: str) -> None:
    [shard] = await router.add(says(OK))
    answer = await router.send(raw)
    assert (status(answer), error(answer)["code"]) == (wanted, code)
    assert headers(answer)[b"connection"] == b"close"
    assert shard.requests == []


async def test_a_chunked_body_without_end_is_cut_and_the_client_can_read_why(router: Router) -> None:
    await router.add(says(OK))
    reader, writer = await router.connect()
    writer.write(b"POST /x HTTP/1.1\r\nhost: p\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(12):
        writer.write(chunk(b"x" * (1 << 20)))
    assert status(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)) == 413
    writer.close()


async def test_a_body_that_never_comes_leaves_nothing(router: Router) -> None:
    [shard] = await router.add(says(OK))
    _, writer = await router.connect()
    writer.write(b'POST /x HTTP/1.1\r\nhost: p\r\ncontent-length: 100\r\n\r\n{"a')
    await writer.drain()
    writer.close()
    while router.worker.connections:
        await asyncio.sleep(0.001)
    assert shard.requests == []


async def test_shutting_down_lets_an_answer_end_and_closes_idle_connections(router: Router) -> None:
    go = asyncio.Event()

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b"data: 1\n\n"))
        await go.wait()
        writer.write(b"0\r\n\r\n")

    await router.add(script)
    idle_reader, idle_writer = await router.connect()
    reader, writer = await router.connect()
    writer.write(b"GET /x HTTP/1.1\r\nhost: p\r\n\r\n")
    await reader.readuntil(b"data: 1\n\n")
    for connection in tuple(router.worker.connections):
        connection.finish_up()
    assert await asyncio.wait_for(idle_reader.read(), 5) == b""
    go.set()
    assert (await asyncio.wait_for(reader.read(), 5)).endswith(b"0\r\n\r\n")
    for open_writer in (writer, idle_writer):
        open_writer.close()
