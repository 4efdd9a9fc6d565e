"""The loop with a fake runner: a failing step costs its own requests only, a cancelled one frees its place."""

import asyncio
import threading
from collections.abc import AsyncIterator
from queue import SimpleQueue

import pytest

from tokenpool_engine.cache import Ledger
from tokenpool_engine.engine import Engine, monotonic
from tokenpool_engine.metrics import Metrics
from tokenpool_engine.request import Finish, Picked, Request, Sampling
from tokenpool_engine.scheduler import Scheduler, Step
from tokenpool_engine.stream import Stream


class FakeRunner:
    """Gives token 1, and fails while `broken`; a step waits for the gate."""

    def __init__(self) -> None:
        self.broken = self.closed = False
        self.entered, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def run(self, step: Step) -> dict[str, Picked]:
        self.entered.set()
        self.gate.wait(10)
        if self.broken:
            raise RuntimeError("device fault")
        return {part.request.id: Picked(1) for part in step.slices if part.samples}

    def close(self) -> None:
        self.closed = True


class Parts:
    """An engine on a fake runner."""

    def __init__(self) -> None:
        self.ledger = Ledger(64, 16)
        self.runner = FakeRunner()
        self.metrics = Metrics(self.ledger, 64, monotonic)
        self.engine = Engine(Scheduler(self.ledger, 64, 8), self.runner, self.metrics, monotonic)  # type: ignore[arg-type]


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    made = Parts()
    made.engine.start(asyncio.get_running_loop())
    yield made
    await asyncio.to_thread(made.engine.stop)


def request(name: str, tokens: int = 5) -> Request:
    return Request(name, (1, 2, 3), tokens, Sampling(0.0))


async def finish(stream: Stream) -> tuple[list[int], Finish, str]:
    tokens: list[int] = []
    while True:
        update = await asyncio.wait_for(stream.updates.get(), 10)
        tokens += update.tokens
        if update.finish:
            return tokens, update.finish, update.error


async def test_tokens_come_in_order_and_end_with_a_reason(parts: Parts) -> None:
    streams = [parts.engine.submit(request(f"r{n}", n + 1)) for n in range(5)]
    for number, stream in enumerate(streams):
        assert await finish(stream) == ([1] * (number + 1), Finish.LENGTH, "")
    assert parts.ledger.reserved_tokens == 0
    load = parts.metrics.load(ready=True, draining=False)
    assert (load.prompt_tokens_total, load.generated_tokens_total, load.outstanding_tokens) == (15, 15, 0)


async def test_a_failed_step_costs_its_requests_and_nobody_else(parts: Parts) -> None:
    parts.runner.broken = True
    tokens, reason, text = await finish(parts.engine.submit(request("lost")))
    assert (tokens, reason) == ([], Finish.ERROR)
    assert "RuntimeError" in text
    assert parts.engine.trouble() == ""
    parts.runner.broken = False
    assert await finish(parts.engine.submit(request("fine"))) == ([1] * 5, Finish.LENGTH, "")


async def test_several_failed_steps_in_a_row_turn_health_red_and_a_good_one_green(parts: Parts) -> None:
    parts.runner.broken = True
    for number in range(3):
        await finish(parts.engine.submit(request(f"r{number}")))
    assert parts.engine.trouble() == "3 steps in a row failed"
    parts.runner.broken = False
    await finish(parts.engine.submit(request("fine")))
    assert parts.engine.trouble() == ""


async def test_more_failed_steps_in_a_row_end_the_engine_and_whoever_watches_hears_why() -> None:
    parts = Parts()
    heard: SimpleQueue[str] = SimpleQueue()
    parts.engine.watch(heard.put)
    parts.engine.start(asyncio.get_running_loop())
    parts.runner.broken = True
    for number in range(10):
        assert (await finish(parts.engine.submit(request(f"r{number}"))))[1] is Finish.ERROR
    reason = "10 steps in a row failed, the last with RuntimeError: device fault"
    assert await asyncio.to_thread(heard.get, timeout=10) == reason
    assert (await finish(parts.engine.submit(request("late"))))[2] == "the shard's engine has ended"
    assert parts.runner.closed


class Clock:
    """Time that stands still until told otherwise."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class HangingRunner:
    """A step that does not come back until let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()

    def run(self, step: Step) -> dict[str, Picked]:
        self.entered.set()
        self.let_go.wait(10)
        return {part.request.id: Picked(1) for part in step.slices if part.samples}

    def close(self) -> None:
        self.closed = True


async def test_a_step_that_does_not_come_back_turns_health_red() -> None:
    clock, runner, ledger = Clock(), HangingRunner(), Ledger(64, 16)
    engine = Engine(Scheduler(ledger, 64, 8), runner, Metrics(ledger, 64, clock), clock)  # type: ignore[arg-type]
    engine.start(asyncio.get_running_loop())
    stream = engine.submit(request("stuck", 1))
    assert await asyncio.to_thread(runner.entered.wait, 10)
    clock.seconds = 119
    assert engine.trouble() == ""
    clock.seconds = 121
    assert engine.trouble() == "no step for 121 s although there is work"
    runner.let_go.set()
    await finish(stream)
    await asyncio.to_thread(engine.stop)
    assert engine.trouble() == "the engine's thread has ended"


async def test_an_idle_engine_is_healthy_however_long() -> None:
    clock, ledger = Clock(), Ledger(64, 16)
    engine = Engine(Scheduler(ledger, 64, 8), FakeRunner(), Metrics(ledger, 64, clock), clock)  # type: ignore[arg-type]
    engine.start(asyncio.get_running_loop())
    clock.seconds = 10_000
    assert engine.trouble() == ""
    await asyncio.to_thread(engine.stop)


async def test_a_failed_step_frees_the_pages_of_all_that_were_in_it(parts: Parts) -> None:
    parts.runner.broken = True
    streams = [parts.engine.submit(request(f"r{n}", 50)) for n in range(5)]
    assert [(await finish(stream))[1] for stream in streams] == [Finish.ERROR] * 5
    assert parts.ledger.reserved_tokens == 0
    assert parts.engine.outstanding_tokens() == 0


async def test_a_cancelled_request_ends_and_frees_its_pages(parts: Parts) -> None:
    # Cancelled while its first step is computed: a runner this quick could else be through before anybody cancels.
    parts.runner.gate.clear()
    stream = parts.engine.submit(request("long", 900))
    assert await asyncio.to_thread(parts.runner.entered.wait, 10)
    parts.engine.cancel(stream)
    parts.runner.gate.set()
    tokens, reason, _ = await finish(stream)
    assert (tokens, reason) == ([1], Finish.CANCELLED)
    assert parts.ledger.reserved_tokens == 0


async def test_cancelling_what_has_ended_is_harmless(parts: Parts) -> None:
    stream = parts.engine.submit(request("short", 1))
    await finish(stream)
    parts.engine.cancel(stream)
    assert await finish(parts.engine.submit(request("next"))) == ([1] * 5, Finish.LENGTH, "")
    assert parts.engine.trouble() == ""
