"""A client that reads too slowly gets fewer, larger chunks, and costs the others nothing."""

import asyncio
import json
from typing import Any

import pytest

from support.shard import Running
from tokenpool_engine.api import sending
from tokenpool_engine.stream import Update

BODY = {"prompt": "abc", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


def token_lists(events: list[str]) -> list[list[int]]:
    assert events[-1] == "[DONE]"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return [choice["token_ids"] for choice in choices if "token_ids" in choice]


def flat(lists: list[list[int]]) -> list[int]:
    return [token for tokens in lists for token in tokens]


async def test_what_the_transport_has_no_room_for_is_joined_and_not_lost(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = token_lists(await running.stream(**BODY))
    # Less room than nothing: every update waits for the task, which the loop gets to when it has time.
    monkeypatch.setattr(sending, "UNREAD_BYTES", -1)
    slow = asyncio.create_task(running.stream(**BODY))
    while not running.api.open_streams:
        await asyncio.sleep(0.001)
    [stream] = running.api.open_streams
    held: list[Update] = []
    forward, stream.updates.put_nowait = stream.updates.put_nowait, held.append  # type: ignore[method-assign]
    while not any(update.finish for update in held):
        await asyncio.sleep(0.001)
    for update in held:
        forward(update)
    joined = token_lists(await slow)
    assert flat(joined) == flat(plain)
    assert max(map(len, joined)) > 1


async def test_http_1_0_gets_its_events_without_chunks(running: Running) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"model": "tiny", "stream": True, **BODY}).encode()
    writer.write(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    head, _, events = (await reader.read()).partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0]
    assert b"chunked" not in head.lower()
    found = [event.removeprefix("data: ") for event in events.decode().split("\n\n") if event]
    assert flat(token_lists(found)) == flat(token_lists(await running.stream(**BODY)))
    writer.close()
    await writer.wait_closed()


async def test_an_error_before_the_first_token_is_an_answer_of_its_own(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> None:
        raise RuntimeError("device fault")

    monkeypatch.setattr(running.parts.engine._runner, "run", fail)
    status, body = await running.post("/v1/completions", **BODY, stream=True)
    assert (status, body["error"]["code"]) == (500, "generation_failed")
