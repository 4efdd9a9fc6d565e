"""What do the other routers have together? Loads are added up as they are; use of quotas is added up as it grows.

Pure: readings and their time come in, sums go out. Loads of a router that is gone are gone with it. What its callers
had used stays used: the sums of use never fall, whoever dies, restarts or is not heard of for a while.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tokenpool_router.shared.messages import MOST_CALLERS, Pair, Published

# A router silent for longer is a stranger when it comes back: what it admitted meanwhile is not charged in one go.
# A quota's burst is a minute's worth, so nobody is charged more than that at once.
REMEMBERED_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Sums:
    """Of all other routers: shard id -> (outstanding tokens, requests), caller -> (tokens used, requests in flight)."""

    shards: Mapping[str, Pair] = field(default_factory=dict)
    callers: Mapping[str, Pair] = field(default_factory=dict)


@dataclass
class _Known:
    born: str
    tokens: Mapping[str, int]
    seen_at: float


class Elsewhere:
    """Turns readings of the other routers' numbers into sums."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._used: dict[str, int] = {}

    def read(self, published: Mapping[str, Published], now: float) -> Sums:
        """Sums after a reading: the numbers by router id, without our own."""
        self._forget(now)
        for router, said in published.items():
            self._count(router, said, now)
        shards: dict[str, Pair] = {}
        in_flight: dict[str, Pair] = {}
        for said in published.values():
            _add(shards, said.numbers.shards)
            _add(in_flight, said.numbers.callers)
        return Sums(shards, {caller: (used, in_flight.get(caller, (0, 0))[1]) for caller, used in self._used.items()})

    def faded(self) -> Sums:
        """Sums when nothing has been heard for too long: no loads, no requests; what was used stays used."""
        return Sums({}, {caller: (used, 0) for caller, used in self._used.items()})

    def _forget(self, now: float) -> None:
        gone = [router for router, known in self._known.items() if now - known.seen_at > REMEMBERED_SECONDS]
        for router in gone:
            del self._known[router]

    def _count(self, router: str, said: Published, now: float) -> None:
        known = self._known.get(router)
        tokens = {caller: used for caller, (used, _) in said.numbers.callers.items()}
        for caller, used in tokens.items():
            self._use(caller, _growth(known, said.born, caller, used))
        if known is not None and known.born == said.born:
            tokens = {**known.tokens, **tokens}  # who goes unsaid once did not begin anew
        self._known[router] = _Known(said.born, tokens, now)

    def _use(self, caller: str, tokens: int) -> None:
        if caller in self._used or len(self._used) < MOST_CALLERS:
            self._used[caller] = self._used.get(caller, 0) + tokens


def _growth(known: _Known | None, born: str, caller: str, used: int) -> int:
    """Tokens used since the last reading. A stranger's past is not ours to charge; a restart began at zero."""
    if known is None:
        return 0
    before = known.tokens.get(caller, 0) if known.born == born else 0
    return used - before if used >= before else used


def _add(sums: dict[str, Pair], pairs: Mapping[str, Pair]) -> None:
    for name, (tokens, requests) in pairs.items():
        had = sums.get(name, (0, 0))
        sums[name] = (had[0] + tokens, had[1] + requests)
