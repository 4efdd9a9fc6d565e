"""Kinds of Prometheus series that cost the engine's loop next to nothing: read at the scrape, or counted by hand."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Labels = Mapping[str, str]
Reads = Mapping[str, Callable[[], float]]
NO_LABELS: Final[Labels] = {}


class Reading(Collector):
    """A number that is kept elsewhere and read at the scrape; with `label`, one for each of its values."""

    _kind: type[GaugeMetricFamily] | type[CounterMetricFamily] = GaugeMetricFamily

    def __init__(self, name: str, text: str, reads: Reads, labels: Labels = NO_LABELS, *, label: str = "") -> None:
        self._name, self._text, self._labels = name, text, labels
        self._reads, self._label = reads, label

    def collect(self) -> Iterator[Metric]:
        """The samples."""
        names = [*self._labels, *([self._label] if self._label else [])]
        family = self._kind(self._name, self._text, labels=names)
        for value, read in self._reads.items():
            family.add_metric([*self._labels.values(), *([value] if self._label else [])], read())
        yield family


class Count(Reading):
    """The same for numbers that only grow."""

    _kind = CounterMetricFamily


class Buckets(Collector):
    """A histogram: an observation is a search in a short list, a third of a microsecond."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], labels: Labels) -> None:
        self._name, self._text, self._bounds, self._labels = name, text, tuple(bounds), labels
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, or the same one several times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def collect(self) -> Iterator[Metric]:
        """The samples."""
        total, buckets = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
        family = HistogramMetricFamily(self._name, self._text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), buckets, self._sum)
        yield family
