"""What the router does about shards and clients that are slow, silent or do not read."""

import asyncio
import json
import math
import socket
from typing import Any

from tokenpool_router.http.connection import ClientConnection
from tokenpool_router.http.reader import Limits

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
GET = b"GET /x HTTP/1.1\r\nhost: p\r\n\r\n"
GET_ONCE = b"GET /x HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n"

Router = Any


def code(answer: bytes) -> str:
    """The code of the error at the end of an answer."""
    found: str = json.loads(answer[answer.rindex(b'{"error":') : answer.rindex(b"}}") + 2])["error"]["code"]
    return found


async def says_nothing(_request: bytes, _writer: asyncio.StreamWriter) -> None:
    """A shard that takes requests and never answers."""


async def connect_without_room(router: Router) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that does not read, over sockets that hold next to nothing."""
    before = set(router.worker.connections)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", router.port))
    reader, writer = await asyncio.open_connection(sock=sock)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    while not (new := set(router.worker.connections) - before):
        await asyncio.sleep(0)
    accepted = new.pop()._transport.get_extra_info("socket")
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return reader, writer


async def test_a_shard_that_never_answers_is_a_504_and_no_other_shard_is_bothered(router_with: Any) -> None:
    router = await router_with("--first-byte-seconds", "0.05")
    first, second = await router.add(says_nothing, says_nothing)
    answer = await router.send(GET_ONCE)
    assert (answer[:12], code(answer)) == (b"HTTP/1.1 504", "shard_timeout")
    assert (len(first.requests), len(second.requests)) == (1, 0)
    await asyncio.wait_for(first.lost.wait(), 5)
    load = router.desk.sharding.load("shard-0", now=asyncio.get_running_loop().time())
    assert (load.outstanding_tokens, load.in_flight, load.ejected) == (0, 0, True)


async def test_a_shard_that_falls_silent_in_a_stream_is_an_error_event(router_with: Any) -> None:
    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + b"data: 1\n\n")

    router = await router_with("--stall-seconds", "0.05")
    [shard] = await router.add(script)
    answer = await router.send(GET)
    assert code(answer) == "shard_timeout"
    assert (b"data: 1\n\n" in answer, b"[DONE]" in answer, answer.endswith(b"0\r\n\r\n")) == (True, False, True)
    await asyncio.wait_for(shard.lost.wait(), 5)


async def test_a_shard_that_does_not_accept_in_time_is_left_for_another(router_with: Any) -> None:
    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    router = await router_with("--connect-seconds", "0.05")
    await router.add(script)
    connect, calls = router.desk.pool._connect, 0

    async def never(address: str) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise TimeoutError
        return await connect(address)

    router.desk.pool._connect = never
    refused = asyncio.create_task(router.send(GET_ONCE))
    while not router.desk.waiting:
        await asyncio.sleep(0)
    await router.add(script)
    assert (await refused)[:12] == b"HTTP/1.1 200"


async def test_a_client_slow_to_read_leaves_the_shards_connection_fit_for_the_next(router: Router) -> None:
    big = b"x" * (1 << 20)

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(big), big) if shard.requests[1:] == [] else OK
        )

    [shard] = await router.add(script)
    _, writer = await connect_without_room(router)
    [slow] = router.worker.connections
    writer.write(GET)
    while slow._responder or not shard.requests:
        await asyncio.sleep(0)
    assert slow._unread_due < math.inf, "its answer is stuck in the router"
    assert (await asyncio.wait_for(router.send(GET_ONCE), 5)).endswith(b"hi")
    assert shard.connections == 1
    writer.close()


async def test_who_does_not_read_an_answer_gets_no_further_one(router: Router) -> None:
    big = b"x" * (1 << 20)

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(big), big))

    [shard] = await router.add(script)
    reader, writer = await connect_without_room(router)
    [slow] = router.worker.connections
    writer.write(GET * 30)
    while slow._responder or not shard.requests:
        await asyncio.sleep(0)
    assert (len(shard.requests), len(slow._ready)) == (1, 29)
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(30):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        await asyncio.wait_for(reader.readexactly(len(big)), 10)
    assert len(shard.requests) == 30
    writer.close()


async def test_a_client_that_stops_reading_for_good_is_let_go_and_the_shard_with_it(router_with: Any) -> None:
    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD)
        while True:
            writer.write(b"data: " + b"x" * 10_000 + b"\n\n")
            await writer.drain()

    router = await router_with("--stall-seconds", "0.1")
    [shard] = await router.add(script)
    _, writer = await connect_without_room(router)
    writer.write(GET)
    await asyncio.wait_for(shard.lost.wait(), 5)
    assert router.desk.sharding.load("shard-0", now=0).in_flight == 0
    writer.close()


async def arrive_slowly(raw: bytes) -> bytes:
    """What a client gets that sends this and nothing more."""
    connections: set[ClientConnection] = set()

    def serve(_responder: Any) -> None:
        raise AssertionError("there is no whole request")

    limits = Limits(arrival_seconds=0.05)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ClientConnection(serve, connections, limits), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(raw)
    reading = asyncio.create_task(reader.read())
    while not reading.done():
        await asyncio.sleep(0.01)
        for connection in tuple(connections):
            connection.sweep(loop.time())
    answer = await reading
    writer.close()
    server.close()
    for connection in tuple(connections):
        await connection.gone()
    return answer


async def test_requests_that_do_not_arrive_in_time() -> None:
    for raw in (b"GET /x HTTP/1.1\r\nx: ", b"POST /x HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
        answer = await arrive_slowly(raw)
        assert (answer[:12], code(answer)) == (b"HTTP/1.1 408", "request_timeout")
    assert await arrive_slowly(b"") == b"", "an idle connection is closed without a word"
