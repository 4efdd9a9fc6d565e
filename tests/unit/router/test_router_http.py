"""The side that faces clients, where they pipeline, dawdle, cheat or leave; over real sockets."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest

from tokenpool_router.http.connection import ClientConnection
from tokenpool_router.http.reader import Limits
from tokenpool_router.http.refusals import BAD_REQUEST
from tokenpool_router.http.responder import Responder
from tokenpool_router.journey.transfer import Transfer

Router = Any


async def echo(request: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer with the request as the shard saw it."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(request), request))


def statuses(answers: bytes) -> list[int]:
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


def get(path: bytes, extra: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nhost: p\r\n%b\r\n" % (path, extra)


async def test_garbage_behind_a_request_is_told_after_the_answers_before_it(router: Router) -> None:
    await router.add(echo)
    assert statuses(await router.send(get(b"/1") + get(b"/2") + b"GARBAGE\r\n\r\n")) == [200, 200, 400]


async def test_what_follows_a_last_request_is_ignored(router: Router) -> None:
    [shard] = await router.add(echo)
    assert statuses(await router.send(get(b"/1") + get(b"/2", b"connection: close\r\n") + get(b"/3"))) == [200, 200]
    assert len(shard.requests) == 2


OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: a\r\n"


async def test_an_offered_upgrade_is_not_taken_up_and_the_connection_goes_on(router: Router) -> None:
    [shard] = await router.add(echo)
    last = get(b"/4", b"connection: close\r\n")
    assert statuses(await router.send(get(b"/1") + get(b"/2", OFFER) + get(b"/3", OFFER) + last)) == [200] * 4
    assert [request.split(b" ")[1] for request in shard.requests] == [b"/1", b"/2", b"/3", b"/4"]
    assert not any(b"upgrade" in request.lower() or b"http2" in request.lower() for request in shard.requests)


@pytest.mark.parametrize("step", [1, 7, 1000], ids=["byte by byte", "in pieces", "at once"])
@pytest.mark.parametrize(
    "framed",
    [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
    ids=["length", "chunks"],
)
async def test_a_request_that_offers_an_upgrade_keeps_its_body(router: Router, framed: bytes, step: int) -> None:
    """Java's own client offers HTTP/2 with every request."""
    [shard] = await router.add(echo)
    whole = b"POST /x HTTP/1.1\r\nhost: p\r\n" + OFFER + framed + get(b"/2", b"connection: close\r\n")
    reader, writer = await router.connect()
    for start in range(0, len(whole), step):
        writer.write(whole[start : start + step])
        await asyncio.sleep(0)
    assert statuses(await asyncio.wait_for(reader.read(), 5)) == [200, 200]
    writer.close()
    assert shard.requests[0].endswith(b"content-length: 2\r\n\r\n{}")


async def test_an_upgrade_with_a_body_held_back_is_asked_for_it_once(router: Router) -> None:
    await router.add(echo)
    reader, writer = await router.connect()
    writer.write(b"POST /x HTTP/1.1\r\nhost: p\r\nexpect: 100-continue\r\n" + OFFER + b"content-length: 2\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert statuses(await asyncio.wait_for(reader.readuntil(b"{}"), 5)) == [200]
    writer.close()


async def test_an_old_client_is_not_told_to_go_ahead(router: Router) -> None:
    await router.add(echo)
    answer = await router.send(b"POST /x HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}")
    assert statuses(answer) == [200]


async def test_trailers_are_neither_headers_nor_endless(router: Router) -> None:
    [shard] = await router.add(echo)
    head = b"POST /x HTTP/1.1\r\nhost: p\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    assert statuses(await router.send(head + b"authorization: forged\r\n\r\n")) == [200]
    assert b"forged" not in shard.requests[0]
    assert statuses(await router.send(head + b"a: b\r\n" * 60_000)) == [431]
    assert statuses(await router.send(head + b"a: " + b"b" * 600_000)) == [431]
    assert len(shard.requests) == 1


async def test_a_request_in_arrival_is_served_before_the_router_leaves(router: Router) -> None:
    await router.add(echo)
    reader, writer = await router.connect()
    writer.write(b"POST /x HTTP/1.1\r\nhost: p\r\ncontent-length: 2\r\n\r\n{")
    await asyncio.sleep(0.02)
    for connection in tuple(router.worker.connections):
        connection.finish_up()
    writer.write(b"}")
    answer = await asyncio.wait_for(reader.read(), 5)
    assert (statuses(answer), b"connection: close\r\n" in answer) == ([200], True)
    writer.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"CONNECT p:80 HTTP/1.1\r\nhost: p\r\n\r\n",
        b"GET /x HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /x HTTP/1.1\r\nx: a\rb\r\n\r\n",
        b"GET /x HTTP/1.1\r\nx: a\x00b\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /x HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
        b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_at_once(router: Router, raw: bytes) -> None:
    [shard] = await router.add(echo)
    answer = await router.send(raw)
    assert statuses(answer) == [400]
    assert b"connection: close\r\n" in answer
    assert shard.requests == []


@pytest.mark.interpreted
@pytest.mark.looptime
async def test_a_request_has_its_full_time_from_its_first_byte() -> None:
    arrived: list[bytes] = []

    def serve(responder: Responder) -> None:
        arrived.append(responder.request.body)
        responder.refuse(BAD_REQUEST)

    connection = ClientConnection(serve, set(), Limits(arrival_seconds=60))
    transport = create_autospec(asyncio.Transport, instance=True)
    transport.is_closing.return_value = False
    connection.connection_made(transport)

    async def pass_seconds(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(1)
            connection.sweep(asyncio.get_running_loop().time())

    for _ in range(2):
        await pass_seconds(50)
        connection.data_received(b"POST /x HTTP/1.1\r\ncontent-length: 2\r\n\r\n{")
        await pass_seconds(50)
        connection.data_received(b"}")
    await pass_seconds(59)
    assert (arrived, transport.close.called) == ([b"{}", b"{}"], False)
    await pass_seconds(1)
    assert transport.close.called
    connection.connection_lost(None)


@pytest.mark.interpreted
async def test_a_bug_in_the_middle_of_an_answer_is_a_broken_connection(
    router: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")

    [shard] = await router.add(script)
    reader, writer = await router.connect()
    writer.write(b"GET /x HTTP/1.0\r\n\r\n")
    await reader.readuntil(b"half")
    monkeypatch.setattr(Transfer, "take", lambda *_: 1 / 0)
    next(iter(shard._writers)).write(b"more")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
    await asyncio.wait_for(shard.lost.wait(), 5)
    assert router.desk.sharding.load("shard-0", now=0).outstanding_tokens == 0
