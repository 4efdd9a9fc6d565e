"""What the control process tells, sums and shows: with real tables and reports, and no processes."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tokenpool_api.wire import RevisionLoad, Roster, RosterEntry, RouterShardLoad
from tokenpool_router import series
from tokenpool_router.callers import Caller
from tokenpool_router.control.exposition import exposition
from tokenpool_router.control.line import Message
from tokenpool_router.control.load import router_load
from tokenpool_router.control.membership import Members
from tokenpool_router.control.running import Running
from tokenpool_router.control.state import Control
from tokenpool_router.control.vocabulary import VocabularyCounts
from tokenpool_router.shared import State

ELSEWHERE = 2
"""The row behind those of two workers."""


class Worker:
    """What there is to see of one from outside."""

    def __init__(self, row: int) -> None:
        self.row, self.report = row, None


class Workers:
    """Stands for the supervisor: keeps what was told, and has the workers that a test gives it."""

    def __init__(self) -> None:
        self.told: list[Message] = []
        self.workers: list[Any] = [Worker(0), Worker(1)]
        self.restarts, self.trouble = 3, ""

    def tell(self, message: Message) -> None:
        self.told.append(message)

    async def gather(self) -> None:
        pass

    def serving(self) -> list[Running]:
        return self.workers


@pytest.fixture
async def control() -> Any:
    made = Control(2, Members(5, 0))
    made.supervisor = Workers()  # type: ignore[assignment]
    yield made
    made.gauges.close()


def workers_of(control: Control) -> Any:
    return control.supervisor


def report(control: Control, row: int, **fields: Any) -> None:
    message = {
        "kind": "report", "id": 1, "roster_generation": 0, "open_connections": 2, "queued_requests": 1,
        "queued_tokens": 10, "drain_tokens_per_second": 5.5, "shards": {}, "counters": [], "histograms": [],
        "vocabulary": {}, **fields,
    }  # fmt: skip
    control.worker_reports(row, message)
    workers_of(control).workers[row].report = message


def slots(message: Message, of: str, key: str) -> dict[str, int]:
    return {entry[key]: entry["slot"] for entry in message[of]}


def test_workers_are_told_who_is_there_once(control: Control) -> None:
    control.members.set_static(["b:1", "a:1"])
    control.members_changed()
    [told] = workers_of(control).told
    assert (told["kind"], told["generation"]) == ("roster", 0)
    assert told["shards"][0] == {
        "id": "a:1", "address": "a:1", "weight": 1.0, "speed": 1.0, "draining": False, "max_requests": 5,
        "max_tokens": 0, "revision": "", "slot": 0,
    }  # fmt: skip
    control.members_changed()
    assert len(workers_of(control).told) == 1, "slices change for reasons that are none of ours"
    control.members.set_roster(Roster(generation=1))
    control.members_changed()
    assert workers_of(control).told[1]["generation"] == 1, "and that it is applied has to be known"
    control.members.set_static(["c:1", "b:1"])
    control.members_changed()
    assert slots(workers_of(control).told[2], "shards", "id") == {"b:1": slots(told, "shards", "id")["b:1"], "c:1": 2}


def test_no_keys_is_an_open_door_and_no_callers_a_closed_one(control: Control) -> None:
    control.callers_changed(None)
    control.callers_changed(())
    control.callers_changed((Caller("team", ("ab" * 32,), tokens_per_minute=60),))
    first, second, third = workers_of(control).told
    assert (first["callers"], second["callers"]) == (None, [])
    [entry] = third["callers"]
    assert (entry["name"], entry["sha256"], entry["tokens_per_minute"]) == ("team", ["ab" * 32], 60)
    assert entry["slot"] >= 10_000, "beyond those of shards"


def test_what_others_have_is_written_for_the_workers_and_fades(control: Control) -> None:
    control.members.set_static(["a:1"])
    control.members_changed()
    control.set_elsewhere({"a:1": (70, 2), "unknown": (1, 1)}, {})
    assert control.gauges.get(ELSEWHERE, 0) == (70, 2)
    control.gauges.set(0, 0, 5, 1)
    assert control.gauges.others(1, 0) == (75, 3)
    assert control.own_numbers()[0] == {"a:1": (5, 1)}, "what is elsewhere is not ours to tell"
    control.members.set_static(["b:1", "unknown"])
    control.members_changed()
    slot = slots(workers_of(control).told[-1], "shards", "id")["unknown"]
    assert control.gauges.get(ELSEWHERE, slot) == (1, 1), "one that we hear of later than the other routers"
    control.set_elsewhere({}, {})
    assert control.gauges.get(ELSEWHERE, slot) == (0, 0)


def test_what_routers_say_themselves_goes_before_what_redis_knows(control: Control) -> None:
    control.members.set_static(["a:1"])
    control.members_changed()
    control.set_elsewhere({"a:1": (70, 2)}, {})
    control.set_peers({"a:1": (90, 3)})
    assert control.gauges.get(ELSEWHERE, 0) == (90, 3)
    control.set_elsewhere({"a:1": (80, 2)}, {})
    assert control.gauges.get(ELSEWHERE, 0) == (90, 3)
    control.set_peers({})
    assert control.gauges.get(ELSEWHERE, 0) == (0, 0), "they were heard, and have nothing"
    control.set_peers(None)
    assert control.gauges.get(ELSEWHERE, 0) == (80, 2), "nobody is heard any more"


def test_what_a_dead_workers_callers_used_stays_used(control: Control) -> None:
    control.callers_changed((Caller("team", ("ab" * 32,)), Caller("other", ("cd" * 32,))))
    slot = slots(workers_of(control).told[0], "callers", "name")["team"]
    control.set_elsewhere({}, {"team": (1000, 1)})
    control.gauges.set(0, slot, 400, 3)
    control.gauges.set(1, slot, 50, 1)
    before = control.gauges.others(1, slot)
    assert control.own_numbers()[1]["team"] == (450, 4)
    control.worker_ends(0)
    assert before == (1400, 4)
    assert control.gauges.others(1, slot) == (1400, 1), "its requests are gone, its tokens are not"
    assert control.own_numbers()[1]["team"] == (450, 1)
    control.gauges.set(0, slot, 7, 0)
    control.set_elsewhere({}, {"team": (1100, 0)})
    assert control.gauges.others(1, slot) == (1507, 0)
    assert control.own_numbers()[1]["team"] == (457, 1)
    control.worker_ends(0)
    assert control.own_numbers()[1]["team"] == (457, 1)
    control.callers_changed((Caller("other", ("cd" * 32,)),))
    control.callers_changed((Caller("team", ("ab" * 32,)), Caller("other", ("cd" * 32,))))
    assert control.own_numbers()[1]["team"] == (0, 0), "a caller that left begins anew"


def shard(tokens: int, requests: int, *, ejected: bool) -> dict[str, Any]:
    return {"outstanding_tokens": tokens, "in_flight_requests": requests, "ejected": ejected}


async def test_load_is_the_workers_sum_and_the_oldest_roster(control: Control) -> None:
    control.members.set_static(["a:1", "b:1"])
    control.members.set_roster(Roster(generation=9, shards={"b:1": RosterEntry(weight=0.5, draining=True)}))
    control.members_changed()
    began = asyncio.get_running_loop().time()
    counts = [0] * (len(series.TTFT.buckets) + 1)
    counts[0], counts[2] = 1, 9
    fields: dict[str, Any] = {
        "counters": [
            [series.ARRIVED_PROMPT.name, [], 100],
            [series.ARRIVED_ANSWER.name, [], 40],
            [series.REVISION_REQUESTS.name, ["r"], 10],
            [series.REVISION_ERRORS.name, ["r"], 1],
        ],
        "histograms": [[series.TTFT.name, ["r"], counts, 1.0]],
    }
    report(control, 0, roster_generation=9, shards={"a:1": shard(5, 1, ejected=True)}, **fields)
    both = {"a:1": shard(7, 2, ejected=False), "b:1": shard(1, 1, ejected=True), "gone": shard(9, 9, ejected=True)}
    report(control, 1, roster_generation=8, shards=both)
    load = await router_load(control, began + 10)
    assert load.shards == (
        RouterShardLoad(name="a:1", address="a:1", outstanding_tokens=12, in_flight_requests=3, ejected=False),
        RouterShardLoad(
            name="b:1", address="b:1", outstanding_tokens=1, in_flight_requests=1, ejected=True, weight=0.5,
            draining=True,
        ),
    )  # fmt: skip
    assert (load.workers, load.roster_generation, load.queued_requests, load.queued_tokens) == (2, 8, 2, 20)
    rates = (load.arriving_prompt_tokens_per_second, load.arriving_answer_tokens_per_second)
    assert rates == pytest.approx((10, 4), rel=0.01)
    assert load.drain_tokens_per_second == 11
    wanted = RevisionLoad(requests=10, errors=1, ttft_p50_seconds=0.01 + 0.015 * 4 / 9, ttft_p99_seconds=0.024833)
    found = load.revisions["r"]
    assert (found.requests, found.errors) == (wanted.requests, wanted.errors)
    assert (found.ttft_p50_seconds, found.ttft_p99_seconds) == pytest.approx((0.016667, 0.024833), rel=0.001)


async def test_a_worker_of_which_nothing_is_known_has_applied_nothing(control: Control) -> None:
    report(control, 0, roster_generation=9)
    assert (await router_load(control, asyncio.get_running_loop().time())).roster_generation == 0
    workers_of(control).workers.pop()
    assert (await router_load(control, asyncio.get_running_loop().time())).roster_generation == 9
    workers_of(control).workers.pop()
    assert (await router_load(control, asyncio.get_running_loop().time())).roster_generation == 0


def samples(body: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def test_the_metrics_are_what_prometheus_reads(control: Control) -> None:
    control.members.set_static(["a:1"])
    control.members_changed()
    control.gauges.set(0, 0, 5, 1)
    counts = [1] * (len(series.TTFT.buckets) + 1)
    awkward = 'a"b\\c\nd'
    for row in (0, 1):
        report(
            control,
            row,
            counters=[[series.REQUESTS.name, ["200"], 4], [series.CALLER_REQUESTS.name, [awkward], 1]],
            histograms=[[series.TTFT.name, ["r"], counts, 2.5]],
        )
    found = list(samples(exposition(control, State(connected=True, routers=2, age_seconds=0.5, merges=4))))
    by_name = {name: value for name, labels, value in found if not labels}
    assert ("tokenpool_router_requests_total", {"code": "200"}, 8.0) in found
    assert ("tokenpool_router_caller_requests_total", {"caller": awkward}, 2.0) in found
    assert by_name["tokenpool_router_retries_total"] == 0, "what was never counted is zero, not absent"
    name = series.TTFT.name
    buckets = [(labels["le"], value) for kind, labels, value in found if kind == f"{name}_bucket"]
    assert buckets[0] == ("0.005", 2.0)
    assert buckets[-1] == ("+Inf", 2.0 * len(counts))
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)
    assert (f"{name}_count", {"revision": "r"}, 2.0 * len(counts)) in found
    assert (f"{name}_sum", {"revision": "r"}, 5.0) in found
    assert ("tokenpool_router_shard_outstanding_tokens", {"shard": "a:1"}, 5.0) in found
    wanted = {"workers": 2, "worker_restarts_total": 3, "open_connections": 4, "redis_connected": 1, "redis_routers": 2,
              "redis_age_seconds": 0.5, "redis_merges_total": 4}  # fmt: skip
    assert {key: by_name[f"tokenpool_router_{key}"] for key in wanted} == wanted
    without = {name for name, _, _ in samples(exposition(control, None))}
    assert not any("redis" in name for name in without)


def test_vocabulary_counts_are_kept_only_where_somebody_takes_them(control: Control) -> None:
    report(control, 0, vocabulary={"7": 2})
    assert control.vocabulary is None
    control.vocabulary = VocabularyCounts()
    report(control, 0, vocabulary={"7": 2, "9": 1})
    report(control, 1, vocabulary={"7": 1})
    assert control.vocabulary.take() == {7: 3, 9: 1}
    assert control.vocabulary.take() == {}


def test_vocabulary_counts_stay_bounded_and_keep_what_is_used_most() -> None:
    counts = VocabularyCounts(most_tokens=3)
    counts.add({"1": 8, "2": 4, "3": 1})
    counts.add({"4": 1})
    assert counts.take() == {1: 4, 2: 2}
    counts.add({str(token): 2 for token in range(100)})
    assert counts.take() == {}, "where all are as rare, none of them says anything"
