"""The simulated pool: arrivals and steps in order of time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from router_bench.replay.choosers import FIRST_ANSWER_TOKENS, LEARNING, Chooser, Held
from router_bench.replay.shard import Running, SimulatedShard
from router_bench.replay.traces import Arrival


@dataclass(frozen=True)
class Result:
    """Seconds from arrival to first token, sorted; and how busy the shards were."""

    first_seconds: tuple[float, ...]
    utilization: float

    def at(self, share: float) -> float:
        """A quantile."""
        return self.first_seconds[min(int(share * len(self.first_seconds)), len(self.first_seconds) - 1)]


class World:
    """One replay. The router guesses answers' lengths by the mean of those that ended."""

    def __init__(self, shards: Sequence[SimulatedShard], chooser: Chooser) -> None:
        self._shards, self._chooser = shards, chooser
        self._steps: list[tuple[float, int, int]] = []
        self._order = count()
        self._is_stepping = [False] * len(shards)
        self._mean_answer = FIRST_ANSWER_TOKENS
        self._firsts: list[float] = []

    def play(self, arrivals: Iterable[Arrival]) -> Result:
        """To the end of the last answer."""
        now = 0.0
        for arrival in arrivals:
            now = self._step_until(arrival.at)
            self._arrive(arrival)
        now = max(now, self._step_until(float("inf")))
        busy = sum(shard.busy_seconds for shard in self._shards)
        return Result(tuple(sorted(self._firsts)), busy / (now * len(self._shards)))

    def _step_until(self, moment: float) -> float:
        now = 0.0
        while self._steps and self._steps[0][0] <= moment:
            now, _, number = heappop(self._steps)
            self._shards[number].finish(now)
            self._begin(number, now)
        return now

    def _begin(self, number: int, now: float) -> None:
        seconds = self._shards[number].start()
        self._is_stepping[number] = seconds is not None
        if seconds is not None:
            heappush(self._steps, (now + seconds, next(self._order), number))

    def _arrive(self, arrival: Arrival) -> None:
        expected = int(self._mean_answer)
        number, held = self._chooser.choose(arrival, expected, arrival.at)
        self._shards[number].submit(
            Running(arrival, self._counter(arrival, held, expected), self._ender(arrival, held))
        )
        if not self._is_stepping[number]:
            self._begin(number, arrival.at)

    def _counter(self, arrival: Arrival, held: Held, expected: int) -> Callable[[float, bool], None]:
        """As the router does: with the first token the prompt is done, each further one is one less."""

        def on_token(now: float, is_first: bool) -> None:
            if is_first:
                self._firsts.append(now - arrival.at)
                held.correct(expected)
            else:
                held.progress(1)

        return on_token

    def _ender(self, arrival: Arrival, held: Held) -> Callable[[], None]:
        def on_end() -> None:
            self._mean_answer += LEARNING * (arrival.answer_tokens - self._mean_answer)
            held.release()

        return on_end
