"""A shard dies while streams run: the pool heals, and every stream goes on elsewhere, token by token."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from openai import APIError, OpenAI

from stack.kubectl import wait_until
from stack.pool import Pool


class Outcome(NamedTuple):
    """How one stream ended. `shard` served it; `finish` is None unless it ended whole."""

    text: str
    finish: str | None
    error: str | None
    shard: str


def stream(client: OpenAI, begun: threading.Event, tokens: int) -> Outcome:
    """One long stream; `begun` is set at its first content."""
    text, finish, shard = "", None, ""
    try:
        raw = client.chat.completions.with_raw_response.create(
            model="smollm2-135m-instruct",
            messages=[{"role": "user", "content": "Tell a long story about a ship."}],
            max_tokens=tokens,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        shard = raw.headers["x-tokenpool-shard"]
        for chunk in raw.parse():
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
            begun.set()
    except APIError as error:
        return Outcome(text, finish, str(error.message), shard)
    finally:
        begun.set()
    return Outcome(text, finish, None, shard)


def test_killed_shard_heals_and_its_streams_go_on_elsewhere_token_by_token(make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("loss")
    pool.apply({"shards": {"min": 2}})
    pool.wait_ready(shards=2)
    victim = pool.shards()[0]
    client = pool.client()

    with ThreadPoolExecutor(6) as threads:
        events = [threading.Event() for _ in range(4)]
        running: list[Future[Outcome]] = [threads.submit(stream, client, event, 400) for event in events]
        for event in events:
            assert event.wait(60)
        pool.kubectl.run("delete", "pod", victim["metadata"]["name"], "--grace-period=0", "--force")
        late = [threads.submit(stream, client, threading.Event(), 16) for _ in range(2)]
        outcomes = [future.result(timeout=180) for future in running]
        late_outcomes = [future.result(timeout=180) for future in late]

    hit = [outcome for outcome in outcomes if outcome.shard == victim["metadata"]["name"]]
    spared = [outcome for outcome in outcomes if outcome.shard != victim["metadata"]["name"]]
    assert 0 < len(hit) < len(outcomes), "least load puts streams on both shards"
    assert all(outcome.error is None and outcome.finish == "length" for outcome in outcomes)
    assert {outcome.text for outcome in hit} == {outcome.text for outcome in spared}, "one question, one greedy answer"
    assert all(outcome.error is None and outcome.finish == "length" for outcome in late_outcomes)

    healed = wait_until(
        pool.shards,
        lambda pods: len(pods) == 2 and victim["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in pods],
        60,
        "the lost shard is replaced",
    )
    assert healed[0]["metadata"]["name"] == victim["metadata"]["name"], "the replacement takes the same place"
    pool.wait_ready(shards=2)


def test_gentle_delete_lets_running_streams_finish(make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("gentle")
    pool.apply({"shards": {"min": 1}})
    pool.wait_ready(shards=1)
    [shard] = pool.shards()
    client = pool.client()
    begun = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(stream, client, begun, 200)
        assert begun.wait(60)
        pool.kubectl.run("delete", "pod", shard["metadata"]["name"], "--wait=false")
        outcome = running.result(timeout=120)
    assert outcome == Outcome(outcome.text, "length", None, shard["metadata"]["name"])
