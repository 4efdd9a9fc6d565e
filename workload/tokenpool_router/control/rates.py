"""What changed lately: rates from totals, quantiles from histograms' differences. Pure; time is an argument."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from tokenpool_api.wire import RevisionLoad
from tokenpool_router import series
from tokenpool_router.control.totals import Key, Numbers

RATE_SECONDS: Final = 10.0
REVISION_SECONDS: Final = 60.0
# Snapshots are taken every second; asked more often, the last one is replaced.
STEP_SECONDS: Final = 0.9


class Recent:
    """Snapshots of the totals over the last minute."""

    def __init__(self, now: float) -> None:
        self._snapshots: deque[tuple[float, dict[Key, Numbers]]] = deque([(now, {})])

    def add(self, sums: dict[Key, Numbers], now: float) -> None:
        """The totals as of now."""
        snapshots = self._snapshots
        if len(snapshots) > 1 and now - snapshots[-2][0] < STEP_SECONDS:
            snapshots.pop()
        snapshots.append((now, sums))
        while len(snapshots) > 2 and snapshots[1][0] <= now - REVISION_SECONDS:
            snapshots.popleft()

    def per_second(self, counter: series.Series) -> float:
        """A counter's mean rate over the last ten seconds, all labels together."""
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

    def revisions(self) -> dict[str, RevisionLoad]:
        """How each revision's shards answered in the last minute; those that did not have to are left out."""
        now, sums = self._snapshots[-1]
        _, before = self._at(now - REVISION_SECONDS)
        found = {}
        for (name, labels), numbers in sums.items():
            if name != series.REVISION_REQUESTS.name:
                continue
            requests = round(numbers[0] - _first(before, (name, labels)))
            errors = _grown(sums, before, (series.REVISION_ERRORS.name, labels))
            ttft = _grown(sums, before, (series.TTFT.name, labels))[:-1]
            if requests or any(errors):
                found[labels[0]] = RevisionLoad(
                    requests=max(requests, 0),
                    errors=max(round(sum(errors)), 0),
                    ttft_p50_seconds=quantile(0.5, ttft, series.TTFT.buckets),
                    ttft_p99_seconds=quantile(0.99, ttft, series.TTFT.buckets),
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
