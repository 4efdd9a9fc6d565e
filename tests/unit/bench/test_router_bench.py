"""What the router's benchmarks reckon with: rows, the stand-in's bytes, traces and the simulated shard."""

import math

import pytest

from router_bench import real_shards, report, wire
from router_bench.measure import at
from router_bench.replay import traces
from router_bench.replay.choosers import Poller, Routers
from router_bench.replay.shard import (
    BASE_SECONDS,
    BUDGET_TOKENS,
    DECODE_SECONDS,
    PREFILL_SECONDS,
    Running,
    SimulatedShard,
)
from router_bench.replay.traces import Arrival
from router_bench.replay.world import World
from router_bench.score import rows
from scoreboard.page import with_part
from scoreboard.rows import alone
from tokenpool_router.journey.events import split_ids
from tokenpool_router.sharding import Policy


def test_rows_have_our_bounds_our_rival_and_who_could_not_be_measured() -> None:
    seen = {
        "cpu_request": {"ours": [50.0, 54.0, 58.0], "envoy": [50.0, 50.0, 50.0], "nginx": [20.0] * 3, "smg": [None]},
        "first_p50": {"direct": [1.0, 1.0, 1.0], "ours": [1.2, 1.3, 1.1], "nginx": [1.5, 1.5, 1.5]},
    }
    found = {(row.work, row.peer_name): row for row in rows(seen, {"smg": "NotStarted: no"})}
    work = "CPU of a streamed answer of 20 events"
    assert found[work, "the bound"].met is True
    assert found[work, "envoy"].met is False
    assert (found[work, "nginx"].must, found[work, "nginx"].ratio) == (None, 2.7)
    assert found[f"{work}: smg", None].note == "NotStarted: no"
    added = found["added time to first token p50", "the bound"]
    assert (added.ours, added.met) == (pytest.approx(0.2), True)


def test_the_stand_in_sends_what_our_shards_send() -> None:
    plain, with_ids = wire.burst(with_ids=False), wire.burst(with_ids=True)
    assert plain.count(b"data: ") == with_ids.count(b"data: ") == wire.EVENTS
    assert b"x-tokenpool" not in plain
    assert split_ids(b":1234\n" + wire.EVENT) == (wire.EVENT, b"1234")
    assert at([1.0, 2.0, 3.0], 0.5) == 2.0
    assert math.isnan(at([], 0.5))


@pytest.mark.parametrize(
    ("name", "requests", "span"),
    [
        ("azure_2023_conv", 19_366, 3501.7),
        ("azure_2023_code", 8_819, 3435.9),
        ("mooncake_fast25_conversation", 12_031, 3537),
    ],
)
def test_the_traces_are_whole(name: str, requests: int, span: float) -> None:
    found = traces.load(name)
    assert (len(found), found[-1].at) == (requests, pytest.approx(span, abs=0.1))
    assert all(one.prompt_tokens > 0 for one in found)


def test_ticks_are_spread_and_order_and_sums_stay() -> None:
    recorded = [Arrival(at, size, 1) for at, size in ((0.0, 1), (0.0, 2), (3.0, 4), (3.0, 8))]
    found = traces.spread(recorded, seed=1)
    assert found == traces.spread(recorded, seed=1) != traces.spread(recorded, seed=2)
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert {one.prompt_tokens for one in found if one.at < 3} == {1, 2}
    assert [one.at for one in traces.faster(recorded, 2.0, most=3)] == [0, 0, 1.5]


def running(prompt: int, answer: int, blocks: tuple[int, ...] = ()) -> Running:
    return Running(Arrival(0.0, prompt, answer, blocks), lambda *_: None, lambda: None)


def test_a_simulated_step_costs_what_it_computes() -> None:
    shard = SimulatedShard(speed=0.5)
    assert shard.start() is None
    shard.submit(running(BUDGET_TOKENS + 100, 2))
    assert shard.start() == pytest.approx(2 * (BASE_SECONDS + BUDGET_TOKENS * PREFILL_SECONDS))
    shard.finish(1.0)
    assert shard.start() == pytest.approx(2 * (BASE_SECONDS + 100 * PREFILL_SECONDS))
    shard.finish(2.0)
    assert shard.start() == pytest.approx(2 * (BASE_SECONDS + DECODE_SECONDS))
    shard.finish(3.0)
    assert shard.start() is None, "two tokens: one with the prompt's end, one decoded"


def test_what_is_in_the_cache_is_not_computed_again() -> None:
    shard = SimulatedShard(has_cache=True)
    shard.submit(running(1024, 1, (1, 2)))
    shard.submit(running(1536, 1, (1, 2, 3)))
    assert [one.prompt_left for one in shard.waiting] == [1024, 512]


def test_a_replay_measures_from_arrival_to_first_token() -> None:
    shards = [SimulatedShard() for _ in range(2)]
    arrivals = [Arrival(0.0, 1000, 1), Arrival(0.0, 1000, 1)]
    result = World(shards, Routers(Policy.LEAST_TOKENS, (1.0, 1.0))).play(arrivals)
    alone = BASE_SECONDS + 1000 * PREFILL_SECONDS
    assert result.first_seconds == pytest.approx((alone, alone)), "one each, at the same time"
    both = World(shards := [SimulatedShard()], Poller(shards, lambda _: 0.0, 0)).play(arrivals)
    assert both.at(0.99) > 1.5 * alone


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        ([(0, 0.015), (100, 0.15), (200, 15.0)], 150.0),
        ([(0, 0.015), (100, 1.5), (200, 15.0)], 100.0),
        ([(0, 0.015), (100, 0.2), (200, 0.3)], None),
    ],
    ids=["between two rates", "just at one", "never"],
)
def test_where_the_time_to_the_first_token_crosses_its_bound(
    trials: list[tuple[float, float]], wanted: float | None
) -> None:
    found = real_shards.crossing([real_shards.Trial(*one) for one in trials])
    assert found == (None if wanted is None else pytest.approx(wanted))


def test_the_page_has_a_place_for_each_part_of_the_report() -> None:
    page = report.PAGE.read_text()
    row = alone("what", "s", [1.0]).as_json()
    machine = {"cores": 2, "cpu": "any", "memory_gb": 1, "kernel": "6"}
    text = report.part({"machine": machine, "commit": "abc", "rows": [row]})
    for name in report.PARTS:
        assert text in with_part(page, name, text)
