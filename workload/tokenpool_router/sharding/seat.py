"""The account of one shard."""

from math import log2
from typing import Final, final

from tokenpool_router.sharding.shard import Shard

# Shards whose paces differ by less than this are of one pace: it is well within what speed can be measured to.
STEPS_PER_OCTAVE: Final = 16
# Which part of its weight a shard has after it failed; each answer doubles it.
RETURN_SHARE: Final = 0.125
FIRST_EJECTION_SECONDS: Final = 1.0
LONGEST_EJECTION_SECONDS: Final = 30.0


@final
class Seat:
    """What one shard has to do, here and elsewhere. Whoever changes it marks it."""

    __slots__ = (
        "_dirt",
        "_return_share",
        "_told",
        "busy_until",
        "ejected_until",
        "elsewhere_requests",
        "elsewhere_tokens",
        "failures",
        "is_dirty",
        "is_gone",
        "is_told",
        "pace",
        "requests",
        "shard",
        "stamp",
        "tokens",
        "turn",
        "virtual",
    )

    def __init__(self, shard: Shard, dirt: "list[Seat]", told: "list[Seat]") -> None:
        self.shard = shard
        self.tokens = self.requests = 0
        self.elsewhere_tokens = self.elsewhere_requests = 0
        self.failures = 0
        self.ejected_until = self.busy_until = 0.0
        self.turn = 0
        """When it was picked last."""
        self.virtual = 0.0
        """For RoundRobin: picks for its pace."""
        self.stamp = 0
        """Only the entry with this stamp speaks for it."""
        self.is_dirty, self.is_told, self.is_gone = False, True, False
        self._dirt, self._told = dirt, told
        self._return_share = 1.0
        self.pace = 1.0
        self.settle_pace()

    def settle_pace(self) -> None:
        """Weight, speed and return share as one number, in steps."""
        exact = self.shard.weight * self.shard.speed * self._return_share
        self.pace = float(2 ** (round(log2(exact) * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE))

    def mark(self) -> None:
        """Its numbers changed."""
        if not self.is_dirty and not self.is_gone:
            self.is_dirty = True
            self._dirt.append(self)

    def mark_own(self) -> None:
        """Its numbers changed, and others want to know of it."""
        self.mark()
        if self.is_told and not self.is_gone:
            self.is_told = False
            self._told.append(self)

    @property
    def is_full(self) -> bool:
        """It has as much as it may have."""
        shard = self.shard
        if shard.max_requests and self.requests + self.elsewhere_requests >= shard.max_requests:
            return True
        return bool(shard.max_tokens) and self.tokens + self.elsewhere_tokens >= shard.max_tokens

    @property
    def is_returning(self) -> bool:
        """It failed, and has not yet answered often enough since."""
        return self._return_share < 1.0

    def fail(self, now: float) -> None:
        """Rest, longer each time."""
        seconds = min(FIRST_EJECTION_SECONDS * 2**self.failures, LONGEST_EJECTION_SECONDS)
        self.failures = min(self.failures + 1, 16)
        self.ejected_until = now + seconds
        self._return_share = RETURN_SHARE
        self.settle_pace()
        self.mark()

    def succeed(self) -> None:
        """It answered: trust it a little more."""
        if self.is_returning:
            self.ejected_until = 0.0
            self._return_share = min(self._return_share * 2, 1.0)
            self.settle_pace()
            self.mark()
        else:
            self.failures = 0
