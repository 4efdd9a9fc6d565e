"""What changed lately: rates from totals, quantiles from histograms' differences. Pure; time is an argument."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenpool_router import series
from tokenpool_router.control.totals import Key, Numbers

RATE_SECONDS: Final = 10.0
REVISION_SECONDS: Final = 60.0
# Snapshots are taken every second; asked more often, the last one is replaced.
STEP_SECONDS: Final = 0.9
# The others are not asked for, and with a thousand callers would take the memory of a worker.
KEPT: Final = frozenset(
    one.name
    for one in (
        series.ARRIVED_PROMPT,
        series.ARRIVED_ANSWER,
        series.REVISION_REQUESTS,
        series.REVISION_ERRORS,
        series.TTFT,
    )
)


@dataclass(frozen=True)
class RecentRevision:
    """How one revision's shards answered lately."""

    requests: int
    errors: int
    ttft_p50_seconds: float | None
    ttft_p99_seconds: float | None


class Recent:
    """Snapshots of the totals over the last minute."""

    def __init__(self, now: float) -> None:
        self._snapshots: deque[tuple[float, dict[Key, Numbers]]] = deque([(now, {})])

    def add(self, sums: dict[Key, Numbers], now: float) -> None:
        """The totals as of now."""
        snapshots = self._snapshots
        if len(snapshots) > 1 and now - snapshots[-2][0] < STEP_SECONDS:
            snapshots.pop()
        snapshots.append((now, {key: numbers for key, numbers in sums.items() if key[0] in KEPT}))
        while len(snapshots) > 2 and snapshots[1][0] <= now - REVISION_SECONDS:
            snapshots.popleft()

    def per_second(self, counter: series.Series) -> float:
        """A counter's mean rate over the last ten seconds, all labels together. Raises ValueError if it is not KEPT."""
        if counter.name not in KEPT:
            raise ValueError(f"{counter.name} is not kept")
        now, sums = self._snapshots[-1]
        then, before = self._at(now - RATE_SECONDS)
        if now <= then:
            return 0.0
        grown = sum(numbers[0] - _first(before, key) for key, numbers in sums.items() if key[0] == counter.name)
        return max(grown, 0.0) / (now - then)

    def _at(self, moment: float) -> tuple[float, dict[Key, Numbers]]:
        """The last snapshot that is at least that old, else the oldest."""
        found = self._snapshots[0]
        for snapshot in self._snapshots:
            if snapshot[0] > moment:
                break
            found = snapshot
        return found

    def revisions(self) -> dict[str, RecentRevision]:
        """By revision, of the last minute; those that neither answered nor failed then are left out."""
        now, sums = self._snapshots[-1]
        _, before = self._at(now - REVISION_SECONDS)
        # One that only ever failed has no answers yet, and is the one to hear of.
        counted = (series.REVISION_REQUESTS.name, series.REVISION_ERRORS.name)
        found = {}
        for revision in sorted({labels[0] for name, labels in sums if name in counted}):
            requests, errors = (round(sum(_grown(sums, before, (name, (revision,))))) for name in counted)
            if requests > 0 or errors > 0:
                ttft = _grown(sums, before, (series.TTFT.name, (revision,)))[:-1]
                found[revision] = RecentRevision(
                    max(requests, 0),
                    max(errors, 0),
                    quantile(0.5, ttft, series.TTFT.buckets),
                    quantile(0.99, ttft, series.TTFT.buckets),
                )
        return found


def _first(sums: dict[Key, Numbers], key: Key) -> float:
    found = sums.get(key)
    return found[0] if found else 0.0


def _grown(sums: dict[Key, Numbers], before: dict[Key, Numbers], key: Key) -> Numbers:
    numbers = sums.get(key, [])
    old = before.get(key) or [0.0] * len(numbers)
    return [one - other for one, other in zip(numbers, old, strict=True)]


def quantile(share: float, counts: Sequence[float], bounds: Sequence[float]) -> float | None:
    """As Prometheus reckons it: linear within the bucket; the last bound for what is above all of them."""
    whole = sum(counts)
    if whole <= 0:
        return None
    rank, below, low = share * whole, 0.0, 0.0
    for count, bound in zip(counts, bounds, strict=False):
        if below + count >= rank:
            return low + (bound - low) * ((rank - below) / count if count else 1.0)
        below, low = below + count, bound
    return float(bounds[-1])
