"""What the operator counts about itself. Names are promises to dashboards: add, don't rename."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server

PREFIX = "tokenpool_operator"


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.passes = Counter(f"{PREFIX}_passes", "Passes by outcome.", ["outcome"], registry=self.registry)
        self.pass_seconds = Histogram(f"{PREFIX}_pass_seconds", "How long passes took.", registry=self.registry)
        self.writes = Counter(f"{PREFIX}_writes", "Writes to the API server.", ["verb", "kind"], registry=self.registry)
        self.errors = Counter(f"{PREFIX}_errors", "Failed passes by kind of error.", ["reason"], registry=self.registry)
        self.pools = Gauge(f"{PREFIX}_pools", "Pools that this replica works on.", registry=self.registry)
        self.leading = Gauge(f"{PREFIX}_leading", "1 while this replica holds the lease.", registry=self.registry)
        self.watch_age = Gauge(
            f"{PREFIX}_watch_last_event_age_seconds",
            "Seconds since a watch last told of something. Grows in a quiet cluster.",
            ["resource"],
            registry=self.registry,
        )

    def watch_ages(self, resource: str, age: Callable[[], float]) -> None:
        """Have the age of one watch computed at each scrape."""
        self.watch_age.labels(resource).set_function(age)

    def serve(self, port: int) -> None:
        """Answer scrapes on a thread of its own, so that a busy loop is seen and not hidden."""
        start_http_server(port, registry=self.registry)
