"""The side that faces shards, where answers are odd, cut in strange places, or followed by more than was asked."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_router.http.messages import Request, ResponseHead
from tokenpool_router.http.responder import Responder
from tokenpool_router.journey.transfer import Transfer

Router = Any
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
EVENTS = ResponseHead(200, b"OK", ((b"content-type", b"text/event-stream"),), None)
GET_ONCE = b"GET /x HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n"


def says(*answers: bytes) -> Any:
    """A script: these in turn, the last one for ever; after an empty one it resets the connection."""
    left = list(answers)

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        writer.write(answer)
        if not answer:
            writer.transport.abort()

    return script


class FakeLine:
    """Records what an answer writes."""

    closing = False

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_aborted = self.is_answered = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def abort(self) -> None:
        self.is_aborted = True

    def answered(self) -> None:
        self.is_answered = True

    @property
    def body(self) -> bytes:
        return b"".join(self.writes).partition(b"\r\n\r\n")[2]


def transfer_to(line: FakeLine, *, keeps_ids: bool = False) -> Transfer:
    """An answer to a client that knows no chunks, so that the body is seen as it is."""
    request = Request(b"POST", b"/x", (), b"", keep_alive=True, version="1.0", request_id=b"id")
    return Transfer(Responder(line, request), b"", keeps_ids=keeps_ids)


@given(
    st.lists(st.sampled_from([b"data: a\n\n", b": ping\n\n", b"data: b\r\n\r\n", b"data: c\ndata: d\n\n"])), st.data()
)
def test_events_reach_the_client_unchanged_and_whole_however_they_are_cut(
    events: list[bytes], data: st.DataObject
) -> None:
    sent = b"".join(events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    line = FakeLine()
    subject = transfer_to(line)
    subject.on_head(EVENTS)
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        subject.send(subject.take(sent[start:end])[0])
        for write in line.writes:
            assert write.endswith((b"\n\n", b"\r\n\r\n"))
        ends = [sum(map(len, events[:count])) for count in range(len(events) + 1)]
        assert len(line.body) == max(size for size in ends if size <= end), "nothing whole is held back"
    subject.finish(b"")
    assert line.body == sent


def test_a_stream_that_ends_within_an_event_is_passed_on_as_it_is() -> None:
    line = FakeLine()
    subject = transfer_to(line)
    subject.on_head(EVENTS)
    data, tokens = subject.take(b"data: a\n\ndata: b")
    subject.finish(data)
    assert (line.body, tokens, line.is_answered) == (b"data: a\n\ndata: b", 1, True)


IDS_HEAD = ResponseHead(200, b"OK", (*EVENTS.headers, (b"x-tokenpool-prompt-tokens", b"7")), None)


@given(st.lists(st.tuples(st.lists(st.integers(0, 99_999), max_size=3), st.booleans()), max_size=12), st.data())
def test_token_ids_are_taken_out_and_counted_however_they_are_cut(
    pieces: list[tuple[list[int], bool]], data: st.DataObject
) -> None:
    """A piece has ids or none, and an event or, where its text is held back, none."""
    sent, events, delivered, waiting = b"", b"", [], []
    for number, (ids, has_event) in enumerate(pieces):
        sent += b":%b\n" % ",".join(map(str, ids)).encode() if ids else b""
        waiting += ids
        if has_event:
            event = b'data: {"text": ":%d \\n:5"}\n\n' % number
            sent, events = sent + event, events + event
            delivered, waiting = delivered + waiting, []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    line = FakeLine()
    subject = transfer_to(line, keeps_ids=True)
    subject.on_head(IDS_HEAD)
    counted = 0
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        text, tokens = subject.take(sent[start:end])
        subject.send(text)
        counted += tokens
    assert line.body == events
    assert subject.ids == ",".join(map(str, delivered)).encode()
    assert counted == subject.tokens == len(delivered)
    assert (subject.prompt_tokens, subject.can_go_on) == (7, True)


@pytest.mark.parametrize("size", [100, 3 << 20])
async def test_a_body_without_a_length_ends_with_the_connection_and_passes_byte_for_byte(
    router: Router, size: int
) -> None:
    content = bytes(number * 7 % 251 for number in range(4096)) * (size // 4096 + 1)

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n" + content)
        await writer.drain()
        writer.close()

    [shard] = await router.add(script)
    answer = await router.send(GET_ONCE.replace(b"1.1", b"1.0"))
    assert answer.split(b"\r\n\r\n", 1)[1] == content
    assert router.desk.sharding.load("shard-0", now=0).ejected is False
    assert len(shard.requests) == 1


async def test_hints_before_the_answer_are_not_the_answer(router: Router) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 2
    await router.add(says(hints + OK))
    answer = await router.post()
    assert (answer[:15], answer[-2:], b"link" in answer) == (b"HTTP/1.1 200 OK", b"hi", False)


@pytest.mark.parametrize(
    "more",
    [b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\nevil", b"HTTP/1.1 5", b"garbage"],
    ids=["whole", "half", "junk"],
)
async def test_what_follows_an_answer_belongs_to_nobody(router: Router, more: bytes) -> None:
    [shard] = await router.add(says(OK + more, OK))
    for _ in range(2):
        answer = await router.post()
        assert (answer[:15], answer[-2:]) == (b"HTTP/1.1 200 OK", b"hi")
        assert b"evil" not in answer
    assert shard.connections == 2, "a connection that says more than it was asked is not used again"


async def test_what_an_idle_connection_says_is_never_an_answer(router: Router) -> None:
    said = asyncio.Event()

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        if len(shard.requests) == 1:
            await said.wait()
            writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\nevil")

    [shard] = await router.add(script)
    assert (await router.post())[-2:] == b"hi"
    said.set()
    await asyncio.wait_for(shard.lost.wait(), 5)
    assert (await router.post())[-2:] == b"hi"
    assert shard.connections == 2


async def test_a_request_that_kills_shards_gets_two_and_is_then_left_alone(router: Router) -> None:
    shards = await router.add(*[says(b"")] * 5)
    for _ in range(3):
        answer = await router.post()
        assert answer.startswith(b"HTTP/1.1 422 ")
        assert b'"code":"request_quarantined"' in answer
        assert b"x-should-retry: false\r\n" in answer
    assert sum(len(shard.requests) for shard in shards) == 2
    now = asyncio.get_running_loop().time()
    assert [load.ejected for load in router.desk.sharding.loads(now=now)].count(True) == 2
    assert {load.outstanding_tokens for load in router.desk.sharding.loads(now=now)} == {0}


async def test_the_last_shards_own_words_count_when_all_are_busy_or_gone(router: Router) -> None:
    busy = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nbusy"
    await router.add(says(b""), says(busy), says(b""))
    answer = await router.post()
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert answer.endswith(b"\r\n\r\nbusy")
    assert b"x-tokenpool-shard: shard-1\r\n" in answer


async def test_other_errors_of_a_shard_are_its_answer(router: Router) -> None:
    first, second = await router.add(*[says(b"HTTP/1.1 500 Oops\r\ncontent-length: 3\r\n\r\nbad")] * 2)
    assert (await router.post()).startswith(b"HTTP/1.1 500 Oops\r\n")
    assert len(first.requests) + len(second.requests) == 1


async def test_an_empty_stream_is_an_answer(router: Router) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    await router.add(says(head + b"0\r\n\r\n"))
    answer = await router.post()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n0\r\n\r\n")
