"""One caller's limits: tokens a minute, as a bucket that fills steadily, and requests at a time.

What other workers and routers gave it comes in as totals, some milliseconds late: so a caller may get a little more
than its limit in that time, and pays for it afterwards.
"""

from typing import Final, final

from tokenpool_router.callers.caller import Caller

MINUTE_SECONDS: Final = 60.0


@final
class Quota:
    """The bucket may be in debt: a request is let in by its estimate, and pays what it really took."""

    __slots__ = (
        "_caller",
        "_elsewhere_requests",
        "_elsewhere_tokens",
        "_filled_at",
        "_level",
        "_taken",
        "requests",
        "used",
    )

    def __init__(self, caller: Caller, now: float) -> None:
        self._caller = caller
        self._level = float(caller.tokens_per_minute)
        self._filled_at = now
        self._elsewhere_tokens: int | None = None
        self._elsewhere_requests = 0
        self._taken = 0
        self.used = 0
        """Tokens since ever, as others are told: it never falls. After a request that took less than it was estimated
        it stands still until as much is used again; others would take a fall for a restart, and charge all anew."""
        self.requests = 0
        """Under way here."""

    def change(self, caller: Caller) -> None:
        """New limits; what was used stays used."""
        self._level = min(
            self._level + caller.tokens_per_minute - self._caller.tokens_per_minute, caller.tokens_per_minute
        )
        self._caller = caller

    @property
    def is_busy(self) -> bool:
        """It has as many requests as it may have."""
        most = self._caller.concurrency
        return bool(most) and self.requests + self._elsewhere_requests >= most

    def wait_seconds(self, tokens: int, now: float) -> float:
        """Until so many tokens are within the limit; 0 now. More than a minute's worth waits for a full bucket."""
        limit = self._caller.tokens_per_minute
        if not limit:
            return 0.0
        self._fill(now)
        missing = min(tokens, limit) - self._level
        return missing * MINUTE_SECONDS / limit if missing > 0 else 0.0

    def begin(self, tokens: int) -> None:
        """A request is let in, by its estimate."""
        self.requests += 1
        self._take(tokens)

    def end(self, estimated: int, tokens: int) -> None:
        """It is over, and took so many."""
        self.requests -= 1
        self._take(tokens - estimated)

    def set_elsewhere(self, tokens: int, requests: int) -> None:
        """Totals of the others. One that goes back is another count's beginning: nothing is owed for it."""
        before = self._elsewhere_tokens
        if before is not None and tokens > before:
            self._level -= tokens - before
        self._elsewhere_tokens = tokens
        self._elsewhere_requests = max(requests, 0)

    def _take(self, tokens: int) -> None:
        self._taken += tokens
        self.used = max(self.used, self._taken)
        self._level = min(self._level - tokens, self._caller.tokens_per_minute)

    def _fill(self, now: float) -> None:
        limit = self._caller.tokens_per_minute
        # Debt is bounded too, or one huge answer would lock its caller out for an hour.
        self._level = max(min(self._level + limit * (now - self._filled_at) / MINUTE_SECONDS, limit), -limit)
        self._filled_at = now
