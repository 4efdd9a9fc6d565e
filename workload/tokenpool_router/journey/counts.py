"""Numbers that only grow, kept as cheaply as can be: the control process makes metrics of them. Pure."""

from bisect import bisect_left
from typing import Any

from tokenpool_router import series
from tokenpool_router.series import Series


class Histogram:
    """Counts by bucket (upper bounds inclusive, the last one without), and the sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class Counts:
    """All series of a worker, since its start."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, float]] = {one.name: {} for one in series.ALL if not one.buckets}
        self._histograms: dict[str, dict[str, Histogram]] = {one.name: {} for one in series.ALL if one.buckets}

    def add(self, counter: Series, amount: float = 1, label: str = "") -> None:
        """Raise a counter."""
        cells = self._counters[counter.name]
        cells[label] = cells.get(label, 0) + amount

    def observe(self, histogram: Series, value: float, label: str = "") -> None:
        """One more in a histogram."""
        cells = self._histograms[histogram.name]
        found = cells.get(label)
        if found is None:
            found = cells[label] = Histogram(histogram.buckets)
        found.observe(value)

    def value(self, wanted: Series, label: str = "") -> float:
        """Of a counter; of a histogram the number of observations."""
        if wanted.buckets:
            found = self._histograms[wanted.name].get(label)
            return sum(found.counts) if found else 0
        return self._counters[wanted.name].get(label, 0)

    def report(self) -> dict[str, Any]:
        """As the control process reads it."""
        return {
            "counters": [
                [name, _labels(name, label), value]
                for name, cells in self._counters.items()
                for label, value in cells.items()
            ],
            "histograms": [
                [name, _labels(name, label), found.counts, found.sum]
                for name, cells in self._histograms.items()
                for label, found in cells.items()
            ],
        }


def _labels(name: str, label: str) -> list[str]:
    return [label] if series.BY_NAME[name].labels else []
