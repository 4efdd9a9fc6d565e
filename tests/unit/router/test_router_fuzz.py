"""Anything at all on the wire: refused or closed, nothing kept, and a stream beside it on the same worker unharmed."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenpool_router.journey.facts import read_facts

Router = Any
LETTERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nhost: p\r\n"
SHAPES: dict[str, bytes] = {
    "two lengths": POST + b"content-length: 4\r\ncontent-length: 5\r\n\r\nabcde",
    "length and chunks": POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in disguise": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "gzip and chunked": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "negative length": POST + b"content-length: -1\r\n\r\n",
    "signed length": POST + b"content-length: +4\r\n\r\nabcd",
    "huge length": POST + b"content-length: 99999999999999999999\r\n\r\n",
    "length in words": POST + b"content-length: four\r\n\r\nabcd",
    "space before colon": POST + b"content-length : 4\r\n\r\nabcd",
    "folded header": b"GET /x HTTP/1.1\r\nhost: p\r\na: b\r\n c\r\n\r\n",
    "chunk size no number": POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
    "chunk size too large": POST + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\na",
    "chunk without its end": POST + b"transfer-encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
    "bare line feeds": b"GET /x HTTP/1.1\nhost: p\n\n",
    "null in a header": b"GET /x HTTP/1.1\r\nhost: p\r\na: b\x00c\r\n\r\n",
    "no version": b"GET /x\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tunnel": b"CONNECT evil:443 HTTP/1.1\r\nhost: evil\r\n\r\n",
}


class Letters:
    """A shard: /control streams one letter at a time, at the test's pace; anything else is answered at once."""

    def __init__(self) -> None:
        self.go: asyncio.Queue[bytes] = asyncio.Queue()

    async def __call__(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        assert request.count(b" HTTP/1.1\r\n") == 1, "one request of ours is one request for the shard"
        if b" /control " not in request.split(b"\r\n", 1)[0]:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            return
        writer.write(LETTERS)
        while letter := await self.go.get():
            writer.write(b"9\r\ndata: %b\n\n\r\n" % letter)
            await writer.drain()
        writer.write(b"0\r\n\r\n")


@asynccontextmanager
async def control_stream(router: Router) -> AsyncIterator[None]:
    """A stream through the worker, which must be whole after whatever happens inside."""
    script = Letters()
    await router.add(script)
    reader, writer = await router.connect()
    writer.write(b"GET /control HTTP/1.1\r\nhost: p\r\n\r\n")
    await script.go.put(b"a")
    await asyncio.wait_for(reader.readuntil(b"data: a\n\n\r\n"), 5)
    yield
    await script.go.put(b"b")
    await asyncio.wait_for(reader.readuntil(b"data: b\n\n\r\n"), 5)
    await script.go.put(b"")
    assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5) == b"0\r\n\r\n"
    writer.close()
    async with asyncio.timeout(10):
        while router.worker.connections:
            await asyncio.sleep(0.01)
    assert not router.desk.journeys
    assert {load.in_flight for load in router.desk.sharding.loads(now=0)} == {0}


async def send(router: Router, pieces: Sequence[bytes], *, half_close: bool = False) -> bytes:
    """What comes back for these, from a client that then leaves."""
    reader, writer = await router.connect()
    answer = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if half_close:
            writer.write_eof()
        answer = await asyncio.wait_for(reader.read(65536), 0.15)
    except (TimeoutError, OSError):
        # It waits for more of a request, or has broken the connection.
        pass
    writer.close()
    return answer


def is_refused_or_closed(answer: bytes) -> bool:
    return not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))


@pytest.mark.parametrize("name", SHAPES)
async def test_shapes_that_smuggle_are_refused(router: Router, name: str) -> None:
    follower = b"GET /smuggled HTTP/1.1\r\nhost: p\r\n\r\n"
    async with control_stream(router):
        answer = await send(router, [SHAPES[name] + follower])
    assert is_refused_or_closed(answer), answer
    assert not any(b"/smuggled" in request for request in router.shards[0].requests), "nothing behind it is served"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(max_size=200), max_size=5), half_close=st.booleans())
async def test_random_bytes(router: Router, pieces: list[bytes], half_close: bool) -> None:
    async with control_stream(router):
        answer = await send(router, pieces, half_close=half_close)
        assert is_refused_or_closed(answer)


TOKENS = st.sampled_from(
    [
        *(b"GET", b"POST", b" ", b"/x", b"HTTP/1.1", b"\r\n", b"\n", b":", b"host", b"content-length", b"chunked"),
        *(b"transfer-encoding", b"0", b"5", b"hello", b"expect", b"100-continue", b"upgrade", b"connection", b"close"),
        *(b"\x00", b"\xff"),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(TOKENS, max_size=40), cut=st.integers(0, 60))
async def test_words_of_http_in_any_order(router: Router, words: list[bytes], cut: int) -> None:
    raw = b"POST /x HTTP/1.1\r\n" + b"".join(words)
    async with control_stream(router):
        answer = await send(router, [raw[:cut], raw[cut:]])
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5", b"HTTP/1.1 200", b"HTTP/1.1 100"))


async def test_endless_headers_and_endless_bodies_leave_nothing_in_memory(router: Router) -> None:
    async with control_stream(router):
        chunked = b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        for head in (b"GET /x HTTP/1.1\r\nhost: p\r\n", b"GET /", chunked):
            reader, writer = await router.connect()
            writer.write(head)
            sent, piece = 0, (b"10000\r\n" if head is chunked else b"a: ") + b"x" * 65536 + b"\r\n"
            while sent < 32 << 20:
                writer.write(piece)
                sent += len(piece)
                try:
                    await asyncio.wait_for(writer.drain(), 1)
                except (OSError, TimeoutError):
                    break
                if reader._buffer:  # type: ignore[attr-defined]
                    break
            assert (await reader.read(20)).startswith((b"HTTP/1.1 431", b"HTTP/1.1 413", b"HTTP/1.1 400"))
            assert sent < 16 << 20, "it was stopped on the way"
            writer.close()


async def test_many_slow_clients_are_let_go_and_do_not_hold_up_anybody(router: Router) -> None:
    async with control_stream(router):
        clients = [await router.connect() for _ in range(200)]
        for turn in range(3):
            for _, writer in clients:
                writer.write(b"GET /x HTTP/1.1\r\n"[turn * 5 : turn * 5 + 5])
        assert (await router.send(b"GET /x HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n")).endswith(b"ok")
        later = asyncio.get_running_loop().time() + 61
        for connection in [one for one in router.worker.connections if one._responder is None]:
            connection.sweep(later)
        for reader, writer in clients:
            assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 408")
            writer.close()


async def test_a_flood_of_connections_that_do_nothing_leaves_nothing(router: Router) -> None:
    async with control_stream(router):
        before = None
        for turn in range(6):
            clients = [await router.connect() for _ in range(100)]
            for _, writer in clients:
                writer.transport.abort()
            async with asyncio.timeout(10):
                while len(router.worker.connections) > 1:
                    await asyncio.sleep(0.01)
            gc.collect()
            objects = len(gc.get_objects())
            if turn == 2:
                before = objects
        assert before
        assert objects < before * 1.05


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    "prompt",
    "messages",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "model",
    "echo",
    "logprobs",
    "tools",
)


# How long it takes to think of such bodies says nothing of us.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=10))
def test_any_body_has_facts_that_can_be_reckoned_with(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    facts = read_facts(raw)
    assert 0 <= facts.prompt_bytes <= len(raw) * 4
    assert 0 <= facts.max_tokens <= 1 << 20
    assert facts.answers >= 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8))
async def test_any_body_reaches_the_shard_as_it_is(router: Router, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    [shard] = await router.add(Letters())
    assert (await router.post(raw)).endswith(b"ok")
    assert shard.requests[-1].split(b"\r\n\r\n", 1)[1] == raw
