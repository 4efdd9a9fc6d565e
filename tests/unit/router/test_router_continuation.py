"""A stream whose shard is lost goes on on another one, token by token; over real sockets and scripted shards."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tokenpool_router import series

Router = Any
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-tokenpool-prompt-tokens: 5\r\n"
    b"x-tokenpool-seed: 99\r\ntransfer-encoding: chunked\r\n\r\n"
)
WORDS = ["The", " cap", "ital", " is", " Paris", "."]
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "?"}], "max_tokens": 6}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(created: int, delta: dict[str, Any], **more: Any) -> bytes:
    body = {"id": "chatcmpl-x", "created": created, "choices": [{"index": 0, "delta": delta}], **more}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class Engine:
    """A scripted shard that says WORDS, token ids being their positions, from where `continue_token_ids` ends."""

    def __init__(self, created: int, dies_after: int | None = None, status: int = 200) -> None:
        self.created, self.dies_after, self.status = created, dies_after, status
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        assert b"x-tokenpool-token-ids: 1\r\n" in request
        body = json.loads(request.split(b"\r\n\r\n", 1)[1])
        self.bodies.append(body)
        if self.status != 200:
            writer.write(b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\nno" % self.status)
            return
        before = body.get("continue_token_ids", [])
        writer.write(HEAD + (b"" if before else chunk(event(self.created, {"role": "assistant", "content": ""}))))
        for number in range(len(before), len(WORDS)):
            if number == self.dies_after:
                # Half an event, and a token whose text never came.
                writer.write(chunk(b":%d\ndata: {" % number))
                await writer.drain()
                writer.transport.abort()
                return
            writer.write(chunk(b":%d\n" % number + event(self.created, {"content": WORDS[number]})))
            await writer.drain()
        tokens = len(WORDS) - len(before)
        usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
        end = event(self.created, {}, usage=None) + event(self.created, {}, choices=[], usage=usage)
        writer.write(chunk(end) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def events(answer: bytes) -> list[Any]:
    body = re.sub(rb"\r\n[0-9a-f]+\r\n|^[0-9a-f]+\r\n", b"", answer.split(b"\r\n\r\n", 1)[1])
    found = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in found]


def text(found: Sequence[Any]) -> str:
    deltas = [one["choices"][0]["delta"] for one in found if one != "[DONE]" and one.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)


async def ask(router: Router, **more: Any) -> bytes:
    raw = json.dumps({**BODY, **more}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    answer: bytes = await router.send(head % len(raw) + raw)
    return answer


@pytest.mark.parametrize("lost_after", [1, 2, 5])
async def test_the_client_gets_the_same_stream_as_if_nothing_had_happened(router: Router, lost_after: int) -> None:
    first, second = Engine(100, dies_after=lost_after), Engine(200)
    await router.add(first, second)
    answer = await ask(router, stream_options={"include_usage": True})
    whole = events(answer)
    assert text(whole) == "".join(WORDS)
    assert whole[-1] == "[DONE]"
    assert whole[-2]["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert {one["created"] for one in whole[:-1]} == {100}
    roles = [one["choices"][0]["delta"].get("role") for one in whole[:-2]]
    assert (roles[0], any(roles[1:])) == ("assistant", False)
    assert b"\n:" not in answer
    [rest] = second.bodies
    assert rest["continue_token_ids"] == list(range(lost_after))
    assert rest["seed"] == 99, "the seed that the first one drew"
    assert "seed" not in first.bodies[0]
    assert router.desk.ledger.counts.value(series.CONTINUATIONS, "answered") == 1
    assert {load.outstanding_tokens for load in router.desk.sharding.loads(now=0)} == {0}


async def test_the_clients_own_seed_is_kept(router: Router) -> None:
    second = Engine(2)
    await router.add(Engine(1, dies_after=2), second)
    await ask(router, seed=7)
    assert second.bodies[0]["seed"] == 7


async def test_a_shard_lost_before_any_token_means_a_new_beginning(router: Router) -> None:
    second = Engine(2)
    await router.add(Engine(1, dies_after=0), second)
    whole = events(await ask(router))
    assert text(whole) == "".join(WORDS)
    assert [one["choices"][0]["delta"].get("role") for one in whole[:-2]].count("assistant") == 1


@pytest.mark.parametrize("more", [{"n": 2}, {"echo": True}])
async def test_what_cannot_be_gone_on_with_ends_in_an_error_event(router: Router, more: dict[str, Any]) -> None:
    await router.add(Engine(1, dies_after=2), Engine(2))
    whole = events(await ask(router, **more))
    assert text(whole[:-1]) == "The cap"
    assert whole[-1]["error"]["code"] == "shard_lost"


async def test_two_shards_lost_over_one_stream_are_the_end_of_it(router: Router) -> None:
    third = Engine(3)
    await router.add(Engine(1, dies_after=2), Engine(2, dies_after=4), third)
    whole = events(await ask(router))
    assert text(whole[:-1]) == "The cap" + "ital is"
    assert whole[-1]["error"]["code"] == "request_quarantined"
    assert third.bodies == []
    counts = router.desk.ledger.counts
    assert counts.value(series.CONTINUATIONS, "cut") == counts.value(series.QUARANTINED) == 1
    assert counts.value(series.CONTINUATIONS, "answered") == 0
    assert (await ask(router)).startswith(b"HTTP/1.1 422 ")


@pytest.mark.parametrize(("status", "code"), [(400, "shard_lost"), (503, "no_shard"), (429, "queue_timeout")])
async def test_a_shard_that_refuses_the_rest_is_told_as_an_error_event(router: Router, status: int, code: str) -> None:
    await router.add(Engine(1, dies_after=2), Engine(2, status=status))
    whole = events(await ask(router))
    assert text(whole[:-1]) == "The cap"
    assert whole[-1]["error"]["code"] == code


async def test_a_busy_shard_is_waited_for_with_the_rest_too(router: Router) -> None:
    busy = Engine(2, status=429)
    await router.add(Engine(1, dies_after=2), busy)
    asking = asyncio.create_task(ask(router))
    while not (busy.bodies and router.desk.waiting):
        await asyncio.sleep(0)
    busy.status = 200
    router.desk.sharding.busy("shard-1", until=0.0)
    router.desk.freed()
    assert text(events(await asking)) == "".join(WORDS)


async def test_a_shard_that_knows_no_ids_is_not_gone_on_from(router: Router) -> None:
    """Such as another engine's: its events are passed on as they are, and an event counts as a token."""

    async def script(_request: bytes, writer: asyncio.StreamWriter) -> None:
        head = HEAD.replace(b"x-tokenpool-prompt-tokens: 5\r\n", b"")
        writer.write(head + chunk(b": ping\n\n") + chunk(event(1, {"content": "a"})))
        await writer.drain()
        writer.transport.abort()

    await router.add(script, Engine(2))
    answer = await ask(router)
    assert b": ping\n\n" in answer
    assert events(answer)[-1]["error"]["code"] == "shard_lost"
