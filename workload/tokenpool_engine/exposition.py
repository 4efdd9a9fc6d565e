"""The shard's numbers as Prometheus series.

Those that mean what vLLM's mean have vLLM's names and label, so that its dashboards and gateways work with a shard; the
rest are `tokenpool_shard_…`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tokenpool_engine.request import Finish
from tokenpool_engine.series import Buckets, Count, Reading, Reads

if TYPE_CHECKING:
    from tokenpool_engine.metrics import Metrics

SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
STEP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
WAIT_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
TOKEN_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
ANSWER_SECONDS = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480)
FILL = (0.1, 0.25, 0.5, 0.75, 1)
OWN = "tokenpool_shard_"


class Histograms:
    """Everything that is counted in buckets."""

    def __init__(self, model: str) -> None:
        self.all: list[Buckets] = []
        label = {"model_name": model}

        def make(name: str, text: str, bounds: Sequence[float]) -> Buckets:
            self.all.append(Buckets(name, text, bounds, label if name.startswith("vllm:") else {}))
            return self.all[-1]

        self.sequences = make(f"{OWN}step_sequences", "Requests in one step", SEQUENCES)
        self.fill = make(f"{OWN}step_budget_fill_ratio", "Tokens of a step over its budget", FILL)
        self.step_seconds = make(f"{OWN}step_seconds", "Duration of one step", STEP_SECONDS)
        self.step_tokens = make("vllm:iteration_tokens_total", "Tokens of one step", TOKENS)
        self.queue_seconds = make("vllm:request_queue_time_seconds", "Time before the first step", WAIT_SECONDS)
        self.first_seconds = make("vllm:time_to_first_token_seconds", "Time to first token", WAIT_SECONDS)
        self.token_seconds = make("vllm:inter_token_latency_seconds", "Time between tokens", TOKEN_SECONDS)
        self.answer_seconds = make("vllm:e2e_request_latency_seconds", "Time of a whole answer", ANSWER_SECONDS)
        self.prompt_lengths = make("vllm:request_prompt_tokens", "Tokens of a prompt", TOKENS)
        self.answer_lengths = make("vllm:request_generation_tokens", "Tokens of an answer", TOKENS)


def registry(metrics: "Metrics", model: str) -> CollectorRegistry:
    """All series of a shard, read from its metrics at each scrape."""
    made = CollectorRegistry()
    for part in (*metrics.histograms.all, *_own(metrics), *_like_vllm(metrics, model)):
        made.register(part)
    return made


def _counter(name: str, text: str, read: Callable[[], float], **labels: str) -> Reading:
    return Count(name, text, {"": read}, labels)


def _gauge(name: str, text: str, read: Callable[[], float], **labels: str) -> Reading:
    return Reading(name, text, {"": read}, labels)


def _own(m: "Metrics") -> list[Collector]:
    ledger = m.ledger
    rates = {"in": m.prompt_tokens_per_second, "out": m.tokens_per_second}
    return [
        _counter(f"{OWN}steps", "Forward steps", lambda: m.steps),
        _counter(f"{OWN}computed_tokens", "Tokens of all steps", lambda: m.rows),
        _counter(f"{OWN}recomputed_tokens", "Of them, computed before a preemption already", lambda: m.recomputed),
        _counter(f"{OWN}padded_rows", "Rows beside them that fill up recorded steps on a GPU", m.padded_rows),
        Count(f"{OWN}requests", "Requests by how they ended", _ended(m, Finish), label="finish"),
        _gauge(f"{OWN}outstanding_tokens", "Tokens to compute or generate, at most", lambda: m.outstanding_tokens),
        _gauge(f"{OWN}kv_tokens_reserved", "Tokens of held cache pages", lambda: ledger.reserved_tokens),
        _gauge(f"{OWN}kv_tokens_capacity", "Tokens of all cache pages", lambda: ledger.capacity_tokens),
        Reading(f"{OWN}tokens_per_second", "Mean over ten seconds", rates, label="direction"),
        _gauge(f"{OWN}valid_token_ratio", "Computed tokens that brought a request forward", m.valid_ratio),
        _gauge(f"{OWN}idle_ratio", "Share of the last ten seconds without a step", m.idle_ratio),
        _gauge(f"{OWN}queue_age_seconds", "Age of the oldest request that waits for a place", m.queue_age),
        _Later(
            f"{OWN}step_time_seconds", "Cost of a step, of each that decodes, of each prompt token", "part", m.costs
        ),
        _Later(f"{OWN}startup_seconds", "Stages of the start", "stage", lambda: m.startup_seconds),
    ]


def _like_vllm(m: "Metrics", model: str) -> list[Collector]:
    label = {"model_name": model}
    answered = _ended(m, (Finish.STOP, Finish.LENGTH))
    return [
        _gauge("vllm:num_requests_running", "Requests that run", lambda: m.running, **label),
        _gauge("vllm:num_requests_waiting", "Requests that wait for a place", lambda: m.waiting, **label),
        _gauge("vllm:kv_cache_usage_perc", "Share of cache pages that are held, 0 to 1", m.kv_share, **label),
        _counter("vllm:num_preemptions", "Requests sent back for want of pages", lambda: m.preemptions, **label),
        _counter("vllm:prompt_tokens", "Prompt tokens computed", lambda: m.prompt, **label),
        _counter("vllm:generation_tokens", "Tokens generated", lambda: m.generated, **label),
        _counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the cache", lambda: m.asked, **label),
        _counter("vllm:prefix_cache_hits", "Of them, found there", lambda: m.ledger.shared_tokens, **label),
        Count("vllm:request_success", "Answers that came to their end", answered, label, label="finished_reason"),
    ]


def _ended(m: "Metrics", kinds: Iterable[Finish]) -> Reads:
    return {kind.value: partial(m.ended.__getitem__, kind) for kind in kinds}


class _Later(Collector):
    """A gauge whose labels' values appear with time."""

    def __init__(self, name: str, text: str, label: str, read: Callable[[], dict[str, float]]) -> None:
        self._name, self._text, self._label, self._read = name, text, label, read

    def collect(self) -> list[GaugeMetricFamily]:
        """The samples that there are."""
        family = GaugeMetricFamily(self._name, self._text, labels=[self._label])
        for value, number in self._read().items():
            family.add_metric([value], number)
        return [family]
