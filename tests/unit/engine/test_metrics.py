"""A shard's numbers are the right ones, under the names that vLLM's dashboards ask for."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tokenpool_engine.cache import Ledger
from tokenpool_engine.metrics import Metrics
from tokenpool_engine.request import Finish, Picked, Request, Sampling
from tokenpool_engine.scheduler import Scheduler
from tokenpool_engine.stream import Stream

PAGE, BUDGET = 4, 16


class Shard:
    """A scheduler whose steps take as long as told, and what is counted of it."""

    def __init__(self, pages: int = 16) -> None:
        self.now = 100.0
        ledger = Ledger(pages, PAGE)
        self.scheduler = Scheduler(ledger, BUDGET, 8)
        self.metrics = Metrics(ledger, BUDGET, lambda: self.now, "m")

    def submit(self, name: str, prompt: int, answer: int, first: int = 1) -> Stream:
        request = Request(name, tuple(range(first, first + prompt)), answer, Sampling(0.0))
        self.scheduler.submit(request)
        return Stream(request, submitted_at=self.now)

    def step(self, seconds: float) -> None:
        step = self.scheduler.plan()
        self.now += seconds
        self.scheduler.commit(step, {part.request.id: Picked(7) for part in step.slices if part.samples})
        self.metrics.observe_step(step, seconds)
        self.metrics.observe_queues(self.scheduler)

    def values(self) -> dict[str, float]:
        """Sample by name and labels, the model's left out; buckets as `name_bucket le`."""
        found = {}
        for family in text_string_to_metric_families(generate_latest(self.metrics.registry).decode()):
            for sample in family.samples:
                if sample.name.startswith("vllm:"):
                    assert sample.labels.pop("model_name") == "m"
                found[" ".join([sample.name, *sample.labels.values()])] = sample.value
        return found


def test_tokens_steps_and_rates() -> None:
    shard = Shard()
    shard.submit("a", 20, 3)
    for seconds in (0.5, 0.25, 0.25):
        shard.step(seconds)
    found = shard.values()
    assert found["tokenpool_shard_steps_total"] == 3
    assert (found["vllm:prompt_tokens_total"], found["vllm:generation_tokens_total"]) == (20, 2)
    assert found["tokenpool_shard_computed_tokens_total"] == 16 + 4 + 1
    assert (found["tokenpool_shard_tokens_per_second in"], found["tokenpool_shard_tokens_per_second out"]) == (2.0, 0.2)
    assert found["tokenpool_shard_idle_ratio"] == 0.9
    assert found["tokenpool_shard_outstanding_tokens"] == 1
    assert found["vllm:kv_cache_usage_perc"] == 6 / 16
    assert found["tokenpool_shard_step_seconds_bucket 0.2"] == 0
    assert (found["tokenpool_shard_step_seconds_bucket 0.5"], found["tokenpool_shard_step_seconds_sum"]) == (3, 1.0)
    assert found["tokenpool_shard_step_budget_fill_ratio_bucket 0.25"] == 2
    assert found["vllm:iteration_tokens_total_bucket 16.0"] == 3


def test_rates_forget_what_is_ten_seconds_old() -> None:
    shard = Shard()
    shard.submit("a", 8, 1)
    shard.step(1.0)
    shard.now += 10.5
    found = shard.values()
    assert (found["tokenpool_shard_tokens_per_second out"], found["tokenpool_shard_idle_ratio"]) == (0.0, 1.0)


def test_times_of_a_request() -> None:
    shard = Shard()
    stream = shard.submit("a", 4, 3)
    shard.metrics.observe_start(stream, 100.03)
    for now in (100.2, 100.24, 100.28):
        shard.metrics.observe_tokens(stream, 1, now)
    shard.now, stream.ended = 100.9, Finish.LENGTH
    shard.metrics.observe_end(stream)
    found = shard.values()
    assert (
        found["vllm:request_queue_time_seconds_bucket 0.02"],
        found["vllm:request_queue_time_seconds_bucket 0.04"],
    ) == (0, 1)
    assert (
        found["vllm:time_to_first_token_seconds_bucket 0.1"],
        found["vllm:time_to_first_token_seconds_bucket 0.25"],
    ) == (0, 1)
    assert found["vllm:inter_token_latency_seconds_count"] == 2
    assert (
        found["vllm:inter_token_latency_seconds_bucket 0.025"],
        found["vllm:inter_token_latency_seconds_bucket 0.05"],
    ) == (0, 2)
    assert found["vllm:e2e_request_latency_seconds_bucket 1.0"] == 1
    assert (found["vllm:request_success_total length"], found["vllm:request_success_total stop"]) == (1, 0)
    assert found["tokenpool_shard_startup_seconds first token"] == 100.2 - 100


def test_a_request_that_was_cancelled_is_no_success_and_has_no_time() -> None:
    shard = Shard()
    shard.metrics.observe_end(shard.submit("a", 4, 3))
    found = shard.values()
    assert found["tokenpool_shard_requests_total cancelled"] == 1
    assert (found["vllm:request_success_total stop"], found["vllm:e2e_request_latency_seconds_count"]) == (0, 0)


def test_what_waits_and_since_when() -> None:
    shard = Shard(pages=4)
    shard.submit("a", 12, 4)
    waiting = shard.submit("b", 12, 4)
    shard.step(1.0)
    shard.metrics.observe_queues(shard.scheduler, waiting.submitted_at)
    shard.now += 2.0
    found = shard.values()
    assert (found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]) == (1, 1)
    assert found["tokenpool_shard_queue_age_seconds"] == 3.0


def test_what_preemption_costs_and_sharing_saves() -> None:
    shard = Shard(pages=6)
    shard.submit("old", 8, 12)
    shard.submit("young", 8, 6, first=50)
    while not shard.scheduler.is_idle:
        shard.step(0.1)
    found = shard.values()
    # The young one gave way with twelve tokens computed; the first page of them was still there.
    assert (found["vllm:num_preemptions_total"], found["tokenpool_shard_recomputed_tokens_total"]) == (1, 8)
    assert found["vllm:prefix_cache_hits_total"] == 4
    assert found["tokenpool_shard_computed_tokens_total"] == 19 + 13 + 8
    assert found["tokenpool_shard_valid_token_ratio"] == pytest.approx(32 / 40)


def test_the_work_rate_counts_prompts_too() -> None:
    shard = Shard()
    shard.submit("a", 16, 1)
    shard.step(1.0)
    assert shard.metrics.work_per_second() == pytest.approx(1.7)
