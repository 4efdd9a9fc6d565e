"""The workers' counts as one: what a worker had counted when it ended stays in the sums. Pure."""

from typing import Any

from tokenpool_router.series import Series

Labels = tuple[str, ...]
Key = tuple[str, Labels]
Numbers = list[float]


class Totals:
    """Counters are one number; histograms are their buckets' counts, and the sum behind them."""

    def __init__(self) -> None:
        self._gone: dict[Key, Numbers] = {}
        self._now: dict[int, dict[Key, Numbers]] = {}

    def report(self, row: int, message: dict[str, Any]) -> None:
        """A worker's counts since its start."""
        found: dict[Key, Numbers] = {}
        for name, labels, value in message["counters"]:
            found[name, tuple(labels)] = [value]
        for name, labels, counts, total in message["histograms"]:
            found[name, tuple(labels)] = [*counts, total]
        self._now[row] = found

    def end(self, row: int) -> None:
        """A worker is gone, and counts no more."""
        for key, numbers in self._now.pop(row, {}).items():
            self._gone[key] = _plus(self._gone.get(key), numbers)

    def sums(self) -> dict[Key, Numbers]:
        """All that was ever counted."""
        sums = dict(self._gone)
        for found in self._now.values():
            for key, numbers in found.items():
                sums[key] = _plus(sums.get(key), numbers)
        return sums

    def total(self, series: Series) -> float:
        """A counter over all its labels."""
        return sum(numbers[0] for (name, _), numbers in self.sums().items() if name == series.name)


def _plus(before: Numbers | None, numbers: Numbers) -> Numbers:
    return numbers if before is None else [one + other for one, other in zip(before, numbers, strict=True)]
