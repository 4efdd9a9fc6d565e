"""What keeps a bad request, or a bad minute, from spreading: a budget of retries, and a memory of what kills shards."""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

# Retries as a share of requests: when shards fail all over, trying elsewhere only adds load.
RETRY_SHARE: Final = 0.2
FEWEST_RETRIES: Final = 10.0
MOST_RETRIES: Final = 100.0
# How many shards may be lost over one request.
FATAL: Final = 2
QUARANTINE_SECONDS: Final = 120.0
QUARANTINE_REQUESTS: Final = 1024


class RetryBudget:
    """Every request earns a part of a retry; the first ones are free."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FEWEST_RETRIES

    def earn(self) -> None:
        """A request came."""
        if self._left < MOST_RETRIES:
            self._left += RETRY_SHARE

    def spend(self) -> bool:
        """Whether one more retry may be made."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Quarantine:
    """Digests of bodies over which shards were lost, for a while."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, body: bytes, now: float) -> None:
        """Two shards were lost over this one."""
        self._until[_digest(body)] = now + QUARANTINE_SECONDS
        while len(self._until) > QUARANTINE_REQUESTS:
            self._until.popitem(last=False)

    def holds(self, body: bytes, now: float) -> bool:
        """Whether it is too early to try that body again. Costs nothing while there is none."""
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        return bool(self._until) and self._until.get(_digest(body), 0.0) > now


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
