"""The bell: rings become passes. Time is the loop's own and jumps."""

import asyncio
from collections.abc import Callable

import pytest

from tokenpool_kube import ServerError, TooManyRequests
from tokenpool_operator.bell import Bells
from tokenpool_operator.metrics import Metrics
from tokenpool_operator.reconcile import Outcome

KEY = ("team-a", "chat")
pytestmark = pytest.mark.looptime


class Passes:
    """Records when passes ran; `then` says how each ends."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.ends: list[Outcome | Exception] = []
        self.during: Callable[[], None] = lambda: None
        self.seconds = 0.0

    async def __call__(self, key: tuple[str, str]) -> Outcome:
        self.times.append(asyncio.get_running_loop().time())
        self.during()
        await asyncio.sleep(self.seconds)
        end = self.ends.pop(0) if self.ends else Outcome()
        if isinstance(end, Exception):
            raise end
        return end


@pytest.fixture
def passes() -> Passes:
    return Passes()


def bells(passes: Passes) -> Bells:
    return Bells(passes, Metrics(), resync_seconds=60.0, chance=lambda: 0.5)


async def run(passes: Passes, seconds: float, *, rings: int = 1) -> Bells:
    under_test = bells(passes)
    under_test.open()
    for _ in range(rings):
        under_test.ring(KEY)
    await asyncio.sleep(seconds)
    await under_test.close()
    return under_test


async def test_a_burst_of_rings_is_one_pass(passes: Passes) -> None:
    await run(passes, 1.0, rings=50)
    assert passes.times == pytest.approx([0.1])


async def test_a_ring_during_a_pass_makes_one_more(passes: Passes) -> None:
    under_test = bells(passes)
    under_test.open()
    passes.seconds = 1.0
    under_test.ring(KEY)
    await asyncio.sleep(0.5)
    under_test.ring(KEY)
    under_test.ring(KEY)
    await asyncio.sleep(5.0)
    await under_test.close()
    assert passes.times == pytest.approx([0.1, 1.2])


async def test_without_rings_it_looks_once_in_a_while(passes: Passes) -> None:
    await run(passes, 125.0)
    assert passes.times == pytest.approx([0.1, 60.2, 120.3])


async def test_a_pass_may_ask_to_be_repeated_sooner(passes: Passes) -> None:
    passes.ends = [Outcome(again_seconds=5.0)]
    await run(passes, 10.0)
    assert passes.times == pytest.approx([0.1, 5.2])


async def test_errors_wait_longer_each_time_and_rings_do_not_shorten_it(passes: Passes) -> None:
    passes.ends = [ServerError(500, "", "no")] * 3
    under_test = bells(passes)
    under_test.open()
    under_test.ring(KEY)
    for _ in range(50):
        await asyncio.sleep(0.1)
        under_test.ring(KEY)
    await under_test.close()
    gaps = [later - earlier for earlier, later in zip(passes.times, passes.times[1:], strict=False)]
    assert gaps[:3] == pytest.approx([0.475, 0.85, 1.6])


async def test_the_server_may_say_how_long_to_wait(passes: Passes) -> None:
    passes.ends = [TooManyRequests(429, "", "slow down", retry_after=20.0)]
    await run(passes, 25.0)
    assert passes.times[1] > 20.0


async def test_a_bug_in_a_pass_is_counted_and_retried(passes: Passes, caplog: pytest.LogCaptureFixture) -> None:
    passes.ends = [ZeroDivisionError("oops")]
    await run(passes, 5.0)
    assert len(passes.times) == 2
    assert "a bug ended the pass" in caplog.text


async def test_the_task_of_a_vanished_pool_ends_and_a_new_ring_starts_anew(passes: Passes) -> None:
    passes.ends = [Outcome(gone=True)]
    under_test = bells(passes)
    under_test.open()
    under_test.ring(KEY)
    await asyncio.sleep(200.0)
    assert passes.times == pytest.approx([0.1])
    under_test.ring(KEY)
    await asyncio.sleep(1.0)
    await under_test.close()
    assert len(passes.times) == 2


async def test_a_pool_made_again_during_the_last_pass_is_not_lost(passes: Passes) -> None:
    under_test = bells(passes)
    under_test.open()
    passes.ends = [Outcome(gone=True)]
    passes.during = lambda: under_test.ring(KEY) if len(passes.times) == 1 else None
    under_test.ring(KEY)
    await asyncio.sleep(5.0)
    await under_test.close()
    assert len(passes.times) == 2


async def test_a_standby_remembers_rings_and_does_nothing(passes: Passes) -> None:
    under_test = bells(passes)
    under_test.ring(KEY)
    under_test.ring(("team-b", "other"))
    await asyncio.sleep(500.0)
    assert passes.times == []
    under_test.open()
    await asyncio.sleep(1.0)
    await under_test.close()
    assert len(passes.times) == 2
