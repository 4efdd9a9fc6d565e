"""`python -m router_bench.real_shards`: real shards behind the router, by least tokens and by turns.

Two engines with real weights, each on a core of its own. Requests arrive at random times, the same ones for either
policy, ever more of them, until the time to the first token is no longer what was asked for. What counts is how many
tokens a second got through up to there.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from engine_bench import engines, server, weights
from engine_bench.requests import Request, Words, body, read_words
from router_bench import lineup, wire
from router_bench.process import Running, free_port
from scoreboard.rows import Must, Row, compared

LEAST_TOKENS, ROUND_ROBIN = "LeastTokens", "RoundRobin"
SHARD_CORES = (0, 1)
SEQUENCES = 16
TRIAL_SECONDS, PATIENCE_SECONDS = 20.0, 120.0
CALIBRATION_CLIENTS, CALIBRATION_SECONDS, WARM_SECONDS = 32, 10.0, 5.0
FIRST_SHARE, STEP, MOST_TRIALS = 0.45, 1.18, 8
FIRST_SECONDS = 1.5
"""The time to the first token (p99) at which the policies are compared."""
PERIOD_SECONDS = 0.02
GAIN = 1.3


@dataclass(frozen=True)
class Case:
    """`slow`: one of the shards runs half of the time only."""

    name: str
    slow: bool
    draw: Callable[[int, int], Request]


def ragged(index: int, vocabulary: int) -> Request:
    """Prompts of 16 to 127 tokens, answers of 8 to 95."""
    chance = random.Random(f"ragged/{index}")
    return _request(chance, vocabulary, chance.randint(16, 127), chance.randint(8, 95))


def skewed(index: int, vocabulary: int) -> Request:
    """One request in eight is long: 192 tokens after 192, against 8 to 24 after 16 to 48."""
    chance = random.Random(f"skewed/{index}")
    if chance.random() < 1 / 8:
        return _request(chance, vocabulary, 192, 192)
    return _request(chance, vocabulary, chance.randint(16, 48), chance.randint(8, 24))


def _request(chance: random.Random, vocabulary: int, prompt: int, answer: int) -> Request:
    return Request(tuple(chance.randrange(vocabulary) for _ in range(prompt)), answer)


CASES = (
    Case("one of two shards at half speed, ragged lengths", slow=True, draw=ragged),
    Case("two equal shards, one request in eight is long", slow=False, draw=skewed),
)


@dataclass(frozen=True)
class Trial:
    """What came of one rate of arrivals."""

    tokens_per_second: float
    first_p99: float


def raw(request: Request, words: Words) -> bytes:
    """As it goes over the wire."""
    sent = body(request, words, as_text=False, model=engines.SERVED_NAME)
    return (
        b"POST /v1/completions HTTP/1.1\r\nhost: pool\r\ncontent-type: application/json\r\nconnection: close\r\n"
        b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b" % (wire.KEY.encode(), len(sent), sent)
    )


async def ask(port: int, request: bytes) -> float:
    """Seconds to the first token. Raises RuntimeError for anything but a whole answer."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    seen = await reader.readuntil(b"data: ")
    first = time.monotonic() - began
    rest = await reader.read()
    writer.close()
    if not seen.startswith(b"HTTP/1.1 200") or wire.DONE not in rest:
        raise RuntimeError(f"no whole answer: {(seen + rest)[:300]!r}")
    return first


async def arrive(port: int, requests: Iterator[tuple[Request, bytes]], rate: float) -> Trial:
    """So many requests a second for a while; then until all are answered."""
    draw, tasks, tokens = random.Random(7), [], 0
    began = due = time.monotonic()
    while due < began + TRIAL_SECONDS:
        request, sent = next(requests)
        tokens += len(request.words) + request.answer_tokens
        tasks.append(asyncio.create_task(ask(port, sent)))
        due += draw.expovariate(rate)
        await asyncio.sleep(max(due - time.monotonic(), 0))
    async with asyncio.timeout(PATIENCE_SECONDS):
        firsts = sorted(await asyncio.gather(*tasks))
    return Trial(tokens / TRIAL_SECONDS, firsts[int(0.99 * len(firsts))])


async def capacity(port: int, requests: Iterator[tuple[Request, bytes]]) -> float:
    """Requests a second when there are always some waiting: where to begin the search."""
    begin = time.monotonic() + WARM_SECONDS
    stop, answered = begin + CALIBRATION_SECONDS, 0

    async def client() -> None:
        nonlocal answered
        while time.monotonic() < stop:
            await ask(port, next(requests)[1])
            answered += begin <= time.monotonic() < stop

    await asyncio.gather(*[client() for _ in range(CALIBRATION_CLIENTS)])
    return answered / CALIBRATION_SECONDS


def crossing(trials: Sequence[Trial]) -> float | None:
    """Tokens a second at which the time to the first token crosses what was asked for; None if it never did."""
    for below, above in itertools.pairwise(trials):
        if below.first_p99 <= FIRST_SECONDS < above.first_p99:
            share = log(FIRST_SECONDS / below.first_p99) / log(above.first_p99 / below.first_p99)
            return below.tokens_per_second + share * (above.tokens_per_second - below.tokens_per_second)
    return None


async def search(port: int, requests: Callable[[], Iterator[tuple[Request, bytes]]], rate: float) -> float | None:
    """Ever more, until it is too much."""
    trials = [Trial(0.0, FIRST_SECONDS / 100)]
    while len(trials) <= MOST_TRIALS and trials[-1].first_p99 <= FIRST_SECONDS:
        trials.append(await arrive(port, requests(), rate))
        told = trials[-1]
        print(f"    {rate:.2f} requests/s: {told.tokens_per_second:.0f} tokens/s, TTFT p99 {told.first_p99:.2f} s")
        rate *= STEP
    return crossing(trials)


@contextmanager
def half_speed(session: int) -> Iterator[None]:
    """A process that runs half of the time."""
    over = threading.Event()

    def throttle() -> None:
        while not over.wait(PERIOD_SECONDS / 2):
            os.killpg(session, signal.SIGSTOP)
            over.wait(PERIOD_SECONDS / 2)
            os.killpg(session, signal.SIGCONT)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.killpg(session, signal.SIGCONT)


@contextmanager
def router(policy: str, shards: Sequence[int]) -> Iterator[int]:
    """Our router before these shards; its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="router-bench-") as folder:
        addresses = ",".join(f"127.0.0.1:{shard}" for shard in shards)
        start = lineup.image(port, addresses, "--policy", policy)
        running = Running(start.command, port, Path(folder) / "output", start.environment)
        try:
            yield port
        finally:
            running.end()


def play(case: Case, shards: Sequence[server.Running], words: Words) -> dict[str, float | None]:
    """Both policies on the same arrivals: tokens a second by policy."""

    def requests() -> Iterator[tuple[Request, bytes]]:
        for index in range(1 << 20):
            request = case.draw(index, len(words))
            yield request, raw(request, words)

    ports, found, rate = [shard.port for shard in shards], {}, 0.0
    with ExitStack() as stack:
        if case.slow:
            stack.enter_context(half_speed(shards[-1].session))
        for policy in (LEAST_TOKENS, ROUND_ROBIN):
            with router(policy, ports) as port:
                rate = rate or asyncio.run(capacity(port, requests())) * FIRST_SHARE
                print(f"  {policy}", flush=True)
                found[policy] = asyncio.run(search(port, requests, rate))
    return found


def run() -> list[Row]:
    """A row for each case."""
    model, rows = weights.prepare()["smollm2"], []
    words = read_words(model.words)
    flags = ["--threads", "1", "--max-sequences", str(SEQUENCES)]
    launches = engines.ours(*flags, servers=len(SHARD_CORES)).launches(model)
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="router-bench-") as logs:
        shards = [
            stack.enter_context(
                server.running(
                    replace(launch, command=["taskset", "-c", str(core), *launch.command]), Path(logs) / f"{core}.log"
                )
            )
            for core, launch in zip(SHARD_CORES, launches, strict=True)
        ]
        for case in CASES:
            print(f"real shards: {case.name}", flush=True)
            found = play(case, shards, words)
            rows.append(
                compared(
                    f"throughput at TTFT p99 {FIRST_SECONDS} s: {case.name}",
                    "tokens/s",
                    [found[LEAST_TOKENS]],
                    [found[ROUND_ROBIN]],
                    peer_name="round robin",
                    must=Must(">=", GAIN),
                )
            )
    return rows


if __name__ == "__main__":
    print(json.dumps([row.as_json() for row in run()], indent=1))
