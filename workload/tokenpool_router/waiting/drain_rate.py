"""How fast work gets done, and what that means for those who should come back later."""

from collections import deque
from random import Random
from typing import Final, final

WINDOW_SECONDS: Final = 10.0
BUCKET_SECONDS: Final = 0.5
# For the first answers: a rate over a moment is no rate.
LEAST_SECONDS: Final = 1.0
SHORTEST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
# While nothing was ever done there is nothing to reckon with.
UNKNOWN_WAIT: Final = 5.0
# Spread those who are sent away, so that they do not come back all at once.
JITTER: Final = 0.5


@final
class DrainRate:
    """Tokens done per second, over the last ten."""

    __slots__ = ("_buckets", "_first_at", "_sum")

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._first_at = 0.0

    def add(self, tokens: int, now: float) -> None:
        """So many more are done."""
        if tokens <= 0:
            return
        self._forget(now)
        if not self._buckets:
            self._first_at = now
        if self._buckets and now - self._buckets[-1][0] < BUCKET_SECONDS:
            at, before = self._buckets.pop()
            self._buckets.append((at, before + tokens))
        else:
            self._buckets.append((now, tokens))
        self._sum += tokens

    def rate(self, now: float) -> float:
        """0 when nothing was done lately."""
        self._forget(now)
        seconds = min(max(now - self._first_at, LEAST_SECONDS), WINDOW_SECONDS)
        return self._sum / seconds if self._buckets else 0.0

    def _forget(self, now: float) -> None:
        while self._buckets and self._buckets[0][0] <= now - WINDOW_SECONDS:
            self._sum -= self._buckets.popleft()[1]


def retry_after(backlog_tokens: int, tokens_per_second: float, random: Random) -> float:
    """Seconds until there is room: what is to be done before, at the speed at which it gets done, and a little more."""
    seconds = backlog_tokens / tokens_per_second if tokens_per_second > 0 else UNKNOWN_WAIT
    bounded = min(max(seconds, SHORTEST_WAIT), LONGEST_WAIT)
    return bounded * (1 + JITTER * random.random())
