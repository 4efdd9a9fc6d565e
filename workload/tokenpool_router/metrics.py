"""Prometheus series of one router. Labels are bounded: statuses and nothing else."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """Counters that the data plane raises, and gauges that read when scraped."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tokenpool_router_requests", "Requests by the status that was answered", ["code"], registry=self.registry
        )
        self.retries = Counter(
            "tokenpool_router_retries", "Attempts on another shard after a failed one", registry=self.registry
        )
        self.streams_cut = Counter(
            "tokenpool_router_streams_cut", "Answers that ended in an error after content", registry=self.registry
        )

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read at the scrape."""
        Gauge(f"tokenpool_router_{name}", text, registry=self.registry).set_function(read)
