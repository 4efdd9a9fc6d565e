"""How long to wait before the next try. Numbers only: no clock, no sleeping, no knowledge of what is tried."""

import random
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.5
CAP_SECONDS: Final = 16.0
RETRY_AFTER_CAP_SECONDS: Final = 300.0
# Seeded by nobody, so that replicas started together still differ.
CHANCE: Final = random.SystemRandom().random


class Backoff:
    """Doubling delays, each shortened by up to half at random: clients of a fallen server must not return as one."""

    def __init__(self, chance: Callable[[], float] = CHANCE) -> None:
        self._chance = chance
        self._failures = 0

    def reset(self) -> None:
        """It worked: the next failure is a first one."""
        self._failures = 0

    def next_seconds(self, retry_after: float | None = None) -> float:
        """The delay after one more failure. Never less than `retry_after`, which gets the jitter on top."""
        # Capped before it is raised to a power: failures are counted for days.
        delay = min(CAP_SECONDS, FIRST_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        jittered = delay * (0.5 + 0.5 * self._chance())
        if retry_after is None:
            return jittered
        return min(retry_after, RETRY_AFTER_CAP_SECONDS) + jittered
