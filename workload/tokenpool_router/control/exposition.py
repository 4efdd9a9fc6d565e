"""The router's series in Prometheus' form: the workers' totals, and what the control process itself knows."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenpool_router import series
from tokenpool_router.control.totals import Numbers
from tokenpool_router.shared import State

if TYPE_CHECKING:
    from tokenpool_router.control.state import Control


class RouterCollector(Collector):
    """Made anew for each scrape."""

    def __init__(self, control: "Control", redis: State | None) -> None:
        self._control, self._redis = control, redis

    def collect(self) -> Iterator[Metric]:
        """All series."""
        sums = self._control.totals.sums()
        for one in series.ALL:
            found = {labels: numbers for (name, labels), numbers in sums.items() if name == one.name}
            yield _histogram(one, found) if one.buckets else _counter(one, found)
        for name, text, value in self._gauges():
            yield GaugeMetricFamily(f"tokenpool_router_{name}", text, value=value)
        yield CounterMetricFamily(
            "tokenpool_router_worker_restarts",
            "Workers that ended and were replaced",
            value=self._control.supervisor.restarts,
        )
        if self._redis:
            yield from _redis_counters(self._redis)
        yield from self._shards()

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        control = self._control
        serving = control.supervisor.serving()
        reports = [worker.report for worker in serving if worker.report]
        yield "workers", "Worker processes that serve", len(serving)
        yield "shards", "Shards that may be picked", sum(not shard.draining for shard in control.shards)
        yield "roster_generation", "Generation of the roster", control.members.generation
        for name, text in (
            ("queued_requests", "Requests that wait for a shard"),
            ("queued_tokens", "Estimated tokens of waiting requests"),
            ("open_connections", "Client connections"),
            ("drain_tokens_per_second", "Tokens that get done a second, mean of the last ten"),
        ):
            yield name, text, sum(report[name] for report in reports)
        if control.peers:
            heard = control.peers.heard(asyncio.get_running_loop().time())
            yield "peers", "Other routers of the pool whose loads were heard lately", heard
        if self._redis:
            yield "redis_connected", "Whether the last exchange with Redis worked", float(self._redis.connected)
            yield "redis_routers", "Other routers whose numbers were read", float(self._redis.routers)
            if self._redis.age_seconds is not None:
                yield "redis_age_seconds", "Since the last exchange with Redis that worked", self._redis.age_seconds

    def _shards(self) -> Iterator[Metric]:
        tokens = GaugeMetricFamily(
            "tokenpool_router_shard_outstanding_tokens", "Tokens given to a shard and not yet done", labels=["shard"]
        )
        requests = GaugeMetricFamily(
            "tokenpool_router_shard_in_flight_requests", "Requests given to a shard and not yet ended", labels=["shard"]
        )
        for name, (held, count) in self._control.own_numbers()[0].items():
            tokens.add_metric([name], held)
            requests.add_metric([name], count)
        yield from (tokens, requests)


def _redis_counters(redis: State) -> Iterator[Metric]:
    for name, text, value in (
        ("unreadable", "Values in Redis that no router wrote", redis.unreadable),
        ("batches_sent", "Batches of vocabulary counts that reached Redis", redis.batches_sent),
        ("merges", "Merges of vocabulary counts by this router", redis.merges),
        ("merges_refused", "Merges that came after another router had taken over", redis.merges_refused),
    ):
        yield CounterMetricFamily(f"tokenpool_router_redis_{name}", text, value=value)


def _counter(one: series.Series, found: dict[tuple[str, ...], Numbers]) -> Metric:
    family = CounterMetricFamily(one.name, one.help, labels=one.labels)
    for labels, numbers in found.items():
        family.add_metric(list(labels), numbers[0])
    if not found and not one.labels:
        family.add_metric([], 0)
    return family


def _histogram(one: series.Series, found: dict[tuple[str, ...], Numbers]) -> Metric:
    family = HistogramMetricFamily(one.name, one.help, labels=one.labels)
    bounds = [*map(str, one.buckets), "+Inf"]
    for labels, numbers in found.items():
        *counts, total = numbers
        below, buckets = 0.0, []
        for bound, count in zip(bounds, counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric(list(labels), buckets, total)
    return family


def exposition(control: "Control", redis: State | None) -> bytes:
    """The body of /metrics."""
    registry = CollectorRegistry()
    registry.register(RouterCollector(control, redis))
    return generate_latest(registry)
