"""What one request holds on one shard: it shrinks as tokens are done, and is given back exactly once."""

from typing import final

from tokenpool_router.sharding.seat import Seat
from tokenpool_router.sharding.shard import Shard


@final
class Lease:
    """Stays good when its shard left meanwhile: then nobody's load changes."""

    __slots__ = ("_seat", "is_open", "shard", "tokens")

    def __init__(self, seat: Seat, tokens: int) -> None:
        self.shard: Shard = seat.shard
        self.tokens = tokens
        """Not yet done."""
        self.is_open = True
        self._seat = seat
        seat.tokens += tokens
        seat.requests += 1
        seat.mark_own()

    def progress(self, tokens: int) -> None:
        """So many more are done. More than there were left is no error: estimates are that."""
        done = min(tokens, self.tokens)
        if done > 0 and self.is_open:
            self.tokens -= done
            self._seat.tokens -= done
            self._seat.mark_own()

    def correct(self, tokens: int) -> None:
        """So many are left, as is known now. Raises ValueError below 0."""
        if tokens < 0:
            raise ValueError(f"tokens must not be negative: {tokens}")
        if self.is_open and tokens != self.tokens:
            self._seat.tokens += tokens - self.tokens
            self.tokens = tokens
            self._seat.mark_own()

    def release(self) -> None:
        """Give the rest back. Raises RuntimeError the second time."""
        if not self.is_open:
            raise RuntimeError(f"the lease on {self.shard.id} was released already")
        self.is_open = False
        seat = self._seat
        seat.tokens -= self.tokens
        seat.requests -= 1
        self.tokens = 0
        # Who is full may have room again; what the shard itself said of its time is outdated.
        seat.busy_until = 0.0
        seat.mark_own()
