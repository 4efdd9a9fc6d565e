"""What the control process reckons with: members, slots, totals, rates, and the table that it shares with workers."""

import json
from typing import Any

import pytest

from tokenpool_api.wire import Roster, RosterEntry
from tokenpool_router import series
from tokenpool_router.control.membership import Members, addresses, revision_of
from tokenpool_router.control.rates import Recent, RecentRevision, quantile
from tokenpool_router.control.roster import read_roster
from tokenpool_router.control.slots import NoSlot, Slots
from tokenpool_router.control.totals import Totals
from tokenpool_router.gauges import Gauges
from tokenpool_router.sharding import Shard


def endpoint(name: str | None, address: str | None = "10.0.0.1", **conditions: bool) -> dict[str, Any]:
    return {
        "addresses": [address] if address else [],
        "conditions": conditions,
        "targetRef": {"name": name} if name else None,
    }


def slice_of(*endpoints: dict[str, Any], port: int = 8000) -> dict[str, Any]:
    return {"endpoints": list(endpoints), "ports": [{"name": "x", "port": 1}, {"name": "api", "port": port}]}


@pytest.mark.parametrize(
    ("endpoints", "wanted"),
    [
        ([endpoint("a", ready=True)], ["a"]),
        ([endpoint("a")], ["a"]),
        ([endpoint("a", ready=False)], []),
        ([endpoint("a", ready=True, terminating=True)], []),
        ([endpoint("a", address=None, ready=True)], []),
        ([endpoint(None, ready=True)], []),
        ([endpoint("b", ready=True), endpoint("a", ready=True), endpoint("b", ready=True)], ["a", "b"]),
        ([], []),
    ],
)
def test_who_is_a_member(endpoints: list[dict[str, Any]], wanted: list[str]) -> None:
    members = Members(0, 0)
    assert not members.are_known
    members.set_slices([slice_of(*endpoints), {"endpoints": None, "ports": None}])
    assert members.are_known
    assert members.shards() == [Shard(name, "10.0.0.1:8000") for name in wanted]


def test_ports_and_addresses_of_members() -> None:
    assert addresses([slice_of(endpoint("a", "fd00::1"), endpoint("b"), port=9)]) == {
        "a": "[fd00::1]:9",
        "b": "10.0.0.1:9",
    }
    assert addresses([{"endpoints": [endpoint("a")]}]) == {"a": "10.0.0.1:8000"}


def test_shards_without_kubernetes() -> None:
    members = Members(5, 7)
    members.set_static(["h:1"])
    assert members.shards() == [Shard("h:1", "h:1", max_requests=5, max_tokens=7)]


def roster(generation: int, **entries: RosterEntry) -> Roster:
    return Roster(generation=generation, shards=entries)


def test_the_roster_adds_weights_to_who_is_there_and_is_never_older_than_before() -> None:
    members = Members(0, 0)
    members.set_roster(roster(4, a=RosterEntry(weight=0.3, revision="r1"), gone=RosterEntry()))
    members.set_slices([slice_of(endpoint("a"), endpoint("b", "10.0.0.2"))])
    wanted = [Shard("a", "10.0.0.1:8000", weight=0.3, revision="r1"), Shard("b", "10.0.0.2:8000")]
    assert (members.shards(), members.generation) == (wanted, 4)
    members.set_roster(roster(3, a=RosterEntry(draining=True)))
    assert members.shards() == wanted
    members.set_roster(roster(5, a=RosterEntry(draining=True)))
    assert members.shards()[0].draining
    members.set_roster(None)
    assert members.shards()[0].draining, "a roster that somebody deleted does not send requests to who drains"
    assert members.generation == 0, "it is no answer to whether the next one is applied"
    members.set_roster(roster(1, a=RosterEntry(weight=0.5)))
    assert members.shards()[0].weight == 0.5, "a roster that was made anew begins anew"


def test_what_a_roster_may_say() -> None:
    def config_map(**body: Any) -> dict[str, Any]:
        return {"data": {"roster.json": json.dumps(body)}}

    assert read_roster(None) is None
    assert read_roster({"data": {}}) is None
    found = read_roster(config_map(generation=2, shards={"a": {"weight": 0.5, "later": 1}}, later=1))
    assert found == roster(2, a=RosterEntry(weight=0.5))
    for body in ({"generation": -1}, {"shards": {"a": {"weight": 0}}}, {"shards": {"a": {"weight": 1.5}}}):
        with pytest.raises(ValueError, match=r"generation|shards\.a\.weight"):
            read_roster(config_map(**body))


@pytest.mark.parametrize(
    ("name", "revision"),
    [
        ("chat-abcd1234-0", "abcd1234"),
        ("my-chat-abcd1234-12", "abcd1234"),
        ("h:1", ""),
        ("a-b-c", ""),
        ("a-abcd1234-x", ""),
    ],
)
def test_the_revision_in_a_shards_name(name: str, revision: str) -> None:
    assert revision_of(name) == revision


def test_slots_stay_with_their_owners_and_are_cleared_for_new_ones() -> None:
    cleared: list[int] = []
    slots = Slots(10, 3, cleared.append)
    assert slots.settle(["a", "b"]) == {"a": 10, "b": 11}
    assert slots.settle(["b", "c"]) == {"b": 11, "c": 12}, "a slot rests as long as there is another one"
    assert slots.settle(["b", "c", "d"]) == {"b": 11, "c": 12, "d": 10}
    assert cleared == [10, 11, 12, 10]
    with pytest.raises(NoSlot):
        slots.settle("abcd")


def test_a_table_in_shared_memory() -> None:
    table = Gauges.create(rows=3, slots=4)
    other = Gauges(table.descriptor)
    assert (other.rows, other.slots) == (3, 4)
    for row in range(3):
        table.set(row, 3, 10 ** (row + 1), row)
    assert other.get(2, 3) == (1000, 2)
    assert other.others(0, 3) == (1100, 3)
    other.clear(2)
    assert table.others(0, 3) == (100, 1)
    table.clear_slot(3)
    assert other.others(0, 3) == (0, 0)
    for row, slot in ((3, 0), (0, 4), (-1, 0)):
        with pytest.raises(IndexError):
            table.set(row, slot, 1, 1)


def report(requests: int, *ttft: int) -> dict[str, Any]:
    counts = [0] * (len(series.TTFT.buckets) + 1)
    for bucket in ttft:
        counts[bucket] += 1
    return {
        "counters": [
            [series.REQUESTS.name, ["200"], requests],
            [series.ARRIVED_PROMPT.name, [], 7 * requests],
            [series.REVISION_REQUESTS.name, ["r"], requests],
        ],
        "histograms": [[series.TTFT.name, ["r"], counts, 0.5 * len(ttft)]],
    }


def test_totals_never_go_back() -> None:
    totals = Totals()
    totals.report(0, report(5, 1, 1))
    totals.report(1, report(7))
    assert totals.sums()[series.REQUESTS.name, ("200",)] == [12]
    totals.end(0)
    assert totals.sums()[series.REQUESTS.name, ("200",)] == [12]
    totals.report(0, report(1, 2))
    assert totals.total(series.REQUESTS) == 13
    counts = totals.sums()[series.TTFT.name, ("r",)]
    assert (counts[1], counts[2], counts[-1]) == (2, 1, 1.5)


def test_rates_and_revisions_are_those_of_the_last_while() -> None:
    totals, recent = Totals(), Recent(0.0)
    for second in range(1, 101):
        totals.report(0, report(second * 10, *([1] * min(second, 50)), *([4] * max(second - 50, 0))))
        recent.add(totals.sums(), float(second))
    assert recent.per_second(series.ARRIVED_PROMPT) == pytest.approx(70)
    [(revision, load)] = recent.revisions().items()
    assert (revision, load.requests, load.errors) == ("r", 600, 0)
    assert load.ttft_p50_seconds
    assert 0.05 < load.ttft_p50_seconds <= 0.1
    recent.add(totals.sums(), 180.0)
    recent.add(totals.sums(), 181.0)
    assert (recent.per_second(series.ARRIVED_PROMPT), recent.revisions()) == (0, {})
    with pytest.raises(ValueError, match="tokenpool_router_requests is not kept"):
        recent.per_second(series.REQUESTS)


def test_a_revision_that_only_fails_is_told_of() -> None:
    recent = Recent(0.0)
    recent.add({(series.REVISION_ERRORS.name, ("bad",)): [3.0]}, 1.0)
    assert recent.revisions() == {"bad": RecentRevision(0, 3, None, None)}


def test_rates_of_a_router_that_is_asked_often_and_has_just_begun() -> None:
    recent = Recent(100.0)
    key = (series.ARRIVED_ANSWER.name, ())
    assert recent.per_second(series.ARRIVED_ANSWER) == 0
    for tenth in range(1, 31):
        recent.add({key: [float(tenth)]}, 100.0 + tenth / 10)
    assert recent.per_second(series.ARRIVED_ANSWER) == pytest.approx(10)


@pytest.mark.parametrize(
    ("share", "counts", "wanted"),
    [
        (0.5, [0, 0, 0], None),
        (0.5, [10, 0, 0], 0.5),
        (1.0, [10, 0, 0], 1.0),
        (0.5, [5, 5, 0], 1.0),
        (0.99, [0, 0, 9], 2.0),
    ],
)
def test_quantiles_from_buckets(share: float, counts: list[float], wanted: float | None) -> None:
    assert quantile(share, counts, (1.0, 2.0)) == wanted
