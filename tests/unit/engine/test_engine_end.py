"""The loop's end and its rest: nobody is left waiting, and an idle shard is a healthy one."""

import asyncio
import logging
import threading

import pytest

from tokenpool_engine.cache import Ledger
from tokenpool_engine.engine import STALL_SECONDS, Engine
from tokenpool_engine.metrics import Metrics
from tokenpool_engine.request import Finish, Picked, Request, Sampling
from tokenpool_engine.scheduler import Scheduler, Step
from tokenpool_engine.stream import Stream


class ForgetfulRunner:
    """Computes, but once told to forgets a token: a bug that the scheduler meets outside of the step."""

    def __init__(self) -> None:
        self.forgets = False
        self.gate = threading.Event()
        self.gate.set()

    def run(self, step: Step) -> dict[str, Picked]:
        self.gate.wait()
        return {} if self.forgets else {part.request.id: Picked(1) for part in step.slices if part.samples}

    def close(self) -> None:
        """There is nothing to close."""


class Subject:
    """An engine on that runner and on a clock of ours."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runner, ledger = ForgetfulRunner(), Ledger(64, 16)
        metrics = Metrics(ledger, 64, self.clock)
        self.engine = Engine(Scheduler(ledger, 64, 8), self.runner, metrics, self.clock)

    def clock(self) -> float:
        return self.now

    def submit(self, name: str, prompt: int = 3, tokens: int = 5) -> Stream:
        return self.engine.submit(Request(name, (1,) * prompt, tokens, Sampling(0.0)))


async def end(stream: Stream) -> tuple[Finish, str]:
    while True:
        update = await asyncio.wait_for(stream.updates.get(), 10)
        if update.finish:
            return update.finish, update.error


async def test_a_bug_in_the_loop_ends_every_request_and_turns_health_red(caplog: pytest.LogCaptureFixture) -> None:
    subject = Subject()
    subject.engine.start(asyncio.get_running_loop())
    subject.runner.forgets = True
    subject.runner.gate.clear()
    streams = [subject.submit(f"r{number}", tokens=900) for number in range(3)]
    with caplog.at_level(logging.ERROR):
        subject.runner.gate.set()
        assert [await end(stream) for stream in streams] == [(Finish.ERROR, "the shard's engine has ended")] * 3
    assert "KeyError" in caplog.text
    assert await end(subject.submit("late")) == (Finish.ERROR, "the shard's engine has ended")
    await asyncio.to_thread(subject.engine.stop)
    assert subject.engine.trouble() == "the engine's thread has ended"


async def test_a_request_that_can_never_run_costs_itself_only(caplog: pytest.LogCaptureFixture) -> None:
    subject = Subject()
    subject.engine.start(asyncio.get_running_loop())
    good, huge = subject.submit("good", tokens=50), subject.submit("huge", prompt=2000)
    reason, text = await end(huge)
    assert (reason, "do not fit" in text) == (Finish.ERROR, True)
    assert await end(good) == (Finish.LENGTH, "")
    assert subject.engine.trouble() == ""
    await asyncio.to_thread(subject.engine.stop)


async def test_stopping_ends_what_still_runs() -> None:
    subject = Subject()
    subject.engine.start(asyncio.get_running_loop())
    subject.runner.gate.clear()
    stream = subject.submit("long", tokens=900)
    stopping = asyncio.create_task(asyncio.to_thread(subject.engine.stop))
    while not subject.engine._stopping:
        await asyncio.sleep(0)
    subject.runner.gate.set()
    await stopping
    assert await end(stream) == (Finish.ERROR, "the shard's engine has ended")


async def test_work_after_a_long_rest_is_no_stall_but_a_hung_step_is() -> None:
    subject = Subject()
    subject.engine.start(asyncio.get_running_loop())
    assert await end(subject.submit("first")) == (Finish.LENGTH, "")
    while not subject.engine._resting:
        await asyncio.sleep(0)
    subject.now += 10 * STALL_SECONDS
    subject.runner.gate.clear()
    stream = subject.submit("after the rest")
    assert subject.engine.trouble() == ""
    subject.now += STALL_SECONDS + 1
    assert subject.engine.trouble() == f"no step for {STALL_SECONDS + 1:.0f} s although there is work"
    subject.runner.gate.set()
    assert await end(stream) == (Finish.LENGTH, "")
    await asyncio.to_thread(subject.engine.stop)
