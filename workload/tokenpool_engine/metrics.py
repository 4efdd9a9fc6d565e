"""What a shard says of itself in numbers: Prometheus series, and the sums that `/load` answers."""

from collections import deque
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from tokenpool_api.wire import ShardLoad
from tokenpool_engine.cache import Ledger
from tokenpool_engine.scheduler import Scheduler, Step

RATE_SECONDS = 10.0
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class _Reading(Collector):
    """A counter whose value is kept elsewhere and read at the scrape."""

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._name, self._text, self._read = name, text, read

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One sample."""
        yield CounterMetricFamily(self._name, self._text, value=self._read())


class Metrics:
    """Counts on the engine's thread; read from any."""

    def __init__(self, ledger: Ledger, token_budget: int, clock: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self._ledger, self._budget, self._clock = ledger, token_budget, clock
        self._recent: deque[tuple[float, int]] = deque()
        self.outstanding_tokens = 0
        self._running = self._waiting = self._steps = self._prompt = self._generated = 0
        self._counter("prompt_tokens", "Prompt tokens computed", lambda: self._prompt)
        self._counter("generated_tokens", "Tokens generated", lambda: self._generated)
        self._counter("steps", "Forward steps", lambda: self._steps)
        self._gauge("running_requests", "Requests that run", lambda: self._running)
        self._gauge("waiting_requests", "Requests that wait for a place", lambda: self._waiting)
        self._gauge("outstanding_tokens", "Tokens to compute or generate, at most", lambda: self.outstanding_tokens)
        self._gauge("kv_tokens_reserved", "Tokens of held cache pages", lambda: ledger.reserved_tokens)
        self._gauge("kv_tokens_capacity", "Tokens of all cache pages", lambda: ledger.capacity_tokens)
        self._sequences = self._histogram("step_sequences", "Requests in one step", SEQUENCES)
        self._fill = self._histogram(
            "step_budget_fill_ratio", "Tokens of a step over its budget", (0.1, 0.25, 0.5, 0.75, 1)
        )
        self._seconds = self._histogram("step_seconds", "Duration of one step", SECONDS)
        self.requests = Counter(
            "tokenpool_shard_requests", "Requests by how they ended", ["finish"], registry=self.registry
        )

    def observe_step(self, step: Step, seconds: float) -> None:
        """Book one computed step."""
        generated = sum(part.samples for part in step.slices)
        self._steps += 1
        self._generated += generated
        self._prompt += sum(max(min(part.stop, len(part.request.prompt)) - part.start, 0) for part in step.slices)
        self._sequences.observe(len(step.slices))
        self._fill.observe(step.size / self._budget)
        self._seconds.observe(seconds)
        self._recent.append((self._clock(), generated))
        self._forget_old()

    def observe_queues(self, scheduler: Scheduler) -> None:
        """Note how much there is to do."""
        self._running, self._waiting = len(scheduler.running), len(scheduler.waiting)
        self.outstanding_tokens = scheduler.outstanding_tokens

    @property
    def kv_tokens_capacity(self) -> int:
        """Tokens of all cache pages."""
        return self._ledger.capacity_tokens

    def tokens_per_second(self) -> float:
        """Generated tokens per second, mean over the last ten seconds."""
        oldest = self._clock() - RATE_SECONDS
        return sum(count for at, count in tuple(self._recent) if at >= oldest) / RATE_SECONDS

    def load(self, *, ready: bool, draining: bool) -> ShardLoad:
        """The body of `/load`."""
        return ShardLoad(
            ready=ready,
            draining=draining,
            running_requests=self._running,
            waiting_requests=self._waiting,
            outstanding_tokens=self.outstanding_tokens,
            kv_tokens_reserved=self._ledger.reserved_tokens,
            kv_tokens_capacity=self._ledger.capacity_tokens,
            prompt_tokens_total=self._prompt,
            generated_tokens_total=self._generated,
            steps_total=self._steps,
            tokens_per_second=self.tokens_per_second(),
        )

    def _forget_old(self) -> None:
        oldest = self._clock() - RATE_SECONDS
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()

    def _counter(self, name: str, text: str, read: Callable[[], float]) -> None:
        self.registry.register(_Reading(f"tokenpool_shard_{name}", text, read))

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"tokenpool_shard_{name}", text, registry=self.registry).set_function(read)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"tokenpool_shard_{name}", text, buckets=buckets, registry=self.registry)
