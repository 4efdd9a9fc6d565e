"""Numbers that only grow, kept as cheaply as can be: the control process makes metrics of them. Pure."""

from bisect import bisect_left
from typing import Any, final

from tokenpool_router import series
from tokenpool_router.series import Series


@final
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


@final
class Cells:
    """One counter: a number for each value of its label, "" where it has none."""

    __slots__ = ("by_label",)

    def __init__(self) -> None:
        self.by_label: dict[str, float] = {}

    def add(self, amount: float = 1, label: str = "") -> None:
        """Raise it."""
        self.by_label[label] = self.by_label.get(label, 0) + amount


@final
class Histograms:
    """One histogram for each value of its label."""

    __slots__ = ("_bounds", "by_label")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.by_label: dict[str, Histogram] = {}

    def observe(self, value: float, label: str = "") -> None:
        """One more."""
        found = self.by_label.get(label)
        if found is None:
            found = self.by_label[label] = Histogram(self._bounds)
        found.observe(value)


class Counts:
    """All series of a worker, since its start: named, so that what counts each request looks nothing up."""

    def __init__(self) -> None:
        self._counters: dict[str, Cells] = {}
        self._histograms: dict[str, Histograms] = {}
        self.requests = self._counter(series.REQUESTS)
        self.refused = self._counter(series.REFUSED)
        self.cancelled = self._counter(series.CANCELLED)
        self.cut = self._counter(series.STREAMS_CUT)
        self.retries = self._counter(series.RETRIES)
        self.continuations = self._counter(series.CONTINUATIONS)
        self.quarantined = self._counter(series.QUARANTINED)
        self.arrived_prompt = self._counter(series.ARRIVED_PROMPT)
        self.arrived_answer = self._counter(series.ARRIVED_ANSWER)
        self.prompt_tokens = self._counter(series.PROMPT_TOKENS)
        self.completion_tokens = self._counter(series.COMPLETION_TOKENS)
        self.caller_requests = self._counter(series.CALLER_REQUESTS)
        self.caller_tokens = self._counter(series.CALLER_TOKENS)
        self.revision_requests = self._counter(series.REVISION_REQUESTS)
        self.revision_errors = self._counter(series.REVISION_ERRORS)
        self.first_seconds = self._histogram(series.TTFT)
        self.queue_seconds = self._histogram(series.QUEUE_SECONDS)
        self.seconds = self._histogram(series.SECONDS)

    def _counter(self, counted: Series) -> Cells:
        made = self._counters[counted.name] = Cells()
        return made

    def _histogram(self, counted: Series) -> Histograms:
        made = self._histograms[counted.name] = Histograms(counted.buckets)
        return made

    def value(self, wanted: Series, label: str = "") -> float:
        """Of a counter; of a histogram the number of observations."""
        if wanted.buckets:
            found = self._histograms[wanted.name].by_label.get(label)
            return sum(found.counts) if found else 0
        return self._counters[wanted.name].by_label.get(label, 0)

    def report(self) -> dict[str, Any]:
        """As the control process reads it."""
        return {
            "counters": [
                [name, _labels(name, label), value]
                for name, cells in self._counters.items()
                for label, value in cells.by_label.items()
            ],
            "histograms": [
                [name, _labels(name, label), found.counts, found.sum]
                for name, cells in self._histograms.items()
                for label, found in cells.by_label.items()
            ],
        }


def _labels(name: str, label: str) -> list[str]:
    return [label] if series.BY_NAME[name].labels else []
