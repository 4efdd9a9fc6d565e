"""Which shard is picked: tables for each policy, and what is heard of shards."""

from random import Random
from typing import Any

import pytest

from tokenpool_router.sharding import DynamicSharding, Lease, Policy, Shard, TooManyShards, UnknownShard


def made(*shards: Shard | str, policy: Policy = Policy.LEAST_TOKENS, **more: Any) -> DynamicSharding:
    sharding = DynamicSharding(policy=policy, **more)
    sharding.set_shards([Shard(shard) if isinstance(shard, str) else shard for shard in shards])
    return sharding


def picks(sharding: DynamicSharding, *tokens: int, **more: Any) -> str:
    """Ids of the picked shards, all leases left open; - for none."""
    leases = [sharding.assign_shard(count, **more) for count in tokens]
    return "".join(lease.shard.id if lease else "-" for lease in leases)


def lease(sharding: DynamicSharding, tokens: int = 10, **more: Any) -> Lease:
    found = sharding.assign_shard(tokens, **more)
    assert found
    return found


@pytest.mark.parametrize(
    ("policy", "tokens", "wanted"),
    [
        (Policy.LEAST_TOKENS, (100, 10, 10, 10, 200), "abbbb"),
        (Policy.LEAST_CONNECTIONS, (100, 10, 10, 10), "abba"),
        (Policy.ROUND_ROBIN, (100, 10, 10, 10), "abab"),
        (Policy.PREFIX_AFFINITY, (100, 10, 10), "abb"),
    ],
)
def test_equal_shards(policy: Policy, tokens: tuple[int, ...], wanted: str) -> None:
    assert picks(made("a", "b", policy=policy), *tokens) == wanted


def test_ties_go_to_who_has_fewer_requests_and_then_to_who_was_picked_longest_ago() -> None:
    sharding = made("a", "b", "c")
    assert picks(sharding, 0, 0, 0, 0) == "abca"


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [(Policy.LEAST_TOKENS, 3), (Policy.LEAST_CONNECTIONS, 3), (Policy.ROUND_ROBIN, 3)],
)
def test_a_shard_of_a_quarter_of_the_pace_gets_a_quarter_as_much(policy: Policy, wanted: int) -> None:
    sharding = made("a", Shard("b", weight=0.5, speed=0.5), policy=policy)
    assert picks(sharding, *[10] * 15).count("b") == wanted


def test_this_requests_own_tokens_count() -> None:
    """An idle shard of half the speed is the better one for a small request, not for a large one."""
    sharding = made("a", Shard("b", speed=0.5))
    lease(sharding, 100)
    assert picks(sharding, 99) == "b"
    sharding = made("a", Shard("b", speed=0.5))
    lease(sharding, 100)
    assert picks(sharding, 101) == "a"


def test_the_better_of_two_is_drawn_and_never_the_worst() -> None:
    sharding = made("a", "b", "c", policy=Policy.POWER_OF_TWO, random=Random(1))
    heavy = lease(sharding, 1000).shard.id
    drawn = picks(sharding, *[1] * 60)
    assert heavy not in drawn
    assert len(set(drawn)) == 2


def test_who_has_the_beginning_is_picked_but_never_ahead_of_the_others_by_more_than_it_saves() -> None:
    sharding = made("a", "b", policy=Policy.PREFIX_AFFINITY)
    prefix = (1, 2, 3)
    first = lease(sharding, 400, prefix=prefix)
    assert first.shard.id == "a"
    second = lease(sharding, 400, prefix=prefix)
    assert (second.shard.id, second.tokens) == ("b", 400), "a would save 300, but has 400 to do already"
    first.progress(200)
    third = lease(sharding, 400, prefix=(1, 2, 3, 4))
    assert (third.shard.id, third.tokens) == ("a", 400 - 240)
    assert lease(sharding, 10, prefix=(7, 8)).shard.id == "a", "an unknown beginning counts for nothing"


def test_what_others_have_there_counts_and_is_not_ours() -> None:
    sharding = made("a", "b")
    sharding.set_elsewhere("a", 500, 3)
    assert picks(sharding, 10, 10, 10) == "bbb"
    assert sharding.load("a", now=0).outstanding_tokens == 0
    sharding.set_elsewhere("a", 0, 0)
    sharding.set_elsewhere("gone", 1, 1)
    assert picks(sharding, 10) == "a"


def test_draining_full_and_excluded_shards_get_nothing() -> None:
    sharding = made(Shard("a", draining=True), Shard("b", max_requests=2), Shard("c", max_tokens=100))
    assert picks(sharding, 60, 60, 60, 60, 60) == "bcbc-"
    assert picks(made("a", "b"), 1, exclude={"a", "b"}) == "-"
    assert picks(made("a", "b"), 1, 1, exclude={"a"}) == "bb"
    assert picks(made(), 1) == "-"


def test_a_full_shard_has_room_again_when_a_request_ends_or_moves_on_elsewhere() -> None:
    sharding = made(Shard("a", max_requests=1))
    only = lease(sharding)
    assert picks(sharding, 1) == "-"
    only.release()
    sharding.set_elsewhere("a", 5, 1)
    assert picks(sharding, 1) == "-"
    sharding.set_elsewhere("a", 0, 0)
    assert picks(sharding, 1) == "a"


def test_a_failed_shard_rests_longer_each_time_unless_it_is_the_only_one() -> None:
    sharding = made("a", "b")
    for failure, rest in enumerate([1, 2, 4, 8, 16, 30, 30]):
        now = failure * 100.0
        sharding.failed("a", now=now)
        assert sharding.load("a", now=now + rest - 0.01).ejected
        assert not sharding.load("a", now=now + rest).ejected
    assert picks(sharding, 1, 1, now=601) == "bb"
    assert picks(sharding, 1, now=601, exclude={"b"}) == "a"
    sharding.failed("gone", now=0)


def test_it_returns_with_an_eighth_and_every_answer_doubles_that() -> None:
    sharding = made("a", "b")
    sharding.failed("a", now=0)
    for share in (1 / 8, 1 / 4, 1 / 2, 1.0):
        leases = [lease(sharding, 10, now=10) for _ in range(90)]
        given = sum(one.shard.id == "a" for one in leases)
        assert given == pytest.approx(90 * share / (1 + share), abs=1.5)
        for one in leases:
            one.release()
        sharding.succeeded("a")


def test_a_busy_shard_is_asked_again_at_its_time_or_when_one_of_its_requests_ends() -> None:
    sharding = made("a")
    first = lease(sharding)
    sharding.busy("a", until=5)
    assert picks(sharding, 1, now=4.9) == "-"
    assert picks(sharding, 1, now=5) == "a"
    sharding.busy("a", until=50)
    first.release()
    assert picks(sharding, 1, now=6) == "a"


def test_a_lease_shrinks_and_is_given_back_once() -> None:
    sharding = made("a")
    one = lease(sharding, 100)
    one.progress(30)
    assert (one.tokens, sharding.load("a", now=0).outstanding_tokens) == (70, 70)
    one.correct(120)
    assert sharding.load("a", now=0).outstanding_tokens == 120
    one.progress(1000)
    assert (one.tokens, sharding.load("a", now=0).in_flight) == (0, 1)
    one.correct(40)
    one.release()
    assert (sharding.load("a", now=0).outstanding_tokens, sharding.load("a", now=0).in_flight) == (0, 0)
    with pytest.raises(RuntimeError, match="the lease on a was released already"):
        one.release()
    one.progress(5)
    one.correct(5)
    assert sharding.load("a", now=0).outstanding_tokens == 0


def test_members_are_replaced_and_who_stays_keeps_its_account() -> None:
    sharding = made(Shard("a", "1"), Shard("b", "2"))
    on_a, on_b = lease(sharding, 10), lease(sharding, 20)
    sharding.set_shards([Shard("a", "1", weight=0.3), Shard("b", "other"), Shard("c", "3")])
    loads = {load.shard.id: (load.outstanding_tokens, load.shard.weight) for load in sharding.loads(now=0)}
    assert loads == {"a": (10, 0.3), "b": (0, 1.0), "c": (0, 1.0)}
    on_b.progress(5)
    on_b.release()
    on_a.release()
    assert {load.outstanding_tokens for load in sharding.loads(now=0)} == {0}


def test_changes_are_told_once() -> None:
    sharding = made("a", "b")
    assert sharding.changed() == [("a", 0, 0), ("b", 0, 0)]
    one = lease(sharding, 7)
    one.progress(2)
    assert sharding.changed() == [("a", 5, 1)]
    assert sharding.changed() == []
    sharding.set_elsewhere("b", 4, 4)
    assert sharding.changed() == [], "what others have is no news to them"


def test_wrong_use_is_an_error() -> None:
    sharding = made("a")
    with pytest.raises(UnknownShard, match="nobody"):
        sharding.load("nobody", now=0)
    with pytest.raises(ValueError, match="tokens must not be negative: -1"):
        sharding.assign_shard(-1)
    with pytest.raises(ValueError, match="tokens must not be negative: -1"):
        lease(sharding).correct(-1)
    small = DynamicSharding(max_shards=1)
    with pytest.raises(TooManyShards, match="2 shards, but at most 1 are allowed"):
        small.set_shards([Shard("a"), Shard("b")])
    assert len(small) == 0
    for wrong in ({"weight": 0}, {"speed": -1}, {"max_requests": -1}):
        with pytest.raises(ValueError, match="shard 'x'"):
            Shard("x", **wrong)
    with pytest.raises(ValueError, match="max_shards must be at least 1: 0"):
        DynamicSharding(0)
