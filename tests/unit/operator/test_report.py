"""Conditions, counts and events from the facts of a pass."""

from dataclasses import replace
from typing import Any

import pytest

from tokenpool_api.status import Condition, ConditionType, Revision, ShardState, TokenPoolStatus
from tokenpool_operator.conditions import Facts, verdicts
from tokenpool_operator.observe import Observed, RouterState, Shard
from tokenpool_operator.report import Announcement, announcements, as_json, last_goal, read_status, report
from tokenpool_operator.rollout import Goal
from tokenpool_operator.trouble import Trouble
from tokenpool_operator.utilization import PoolLoad

OLD, NEW = "0ld00000", "new00000"
GOAL = Goal(2, NEW, "file:///model", "engine:1")
ROUTER = RouterState(1, True)
BAD_IMAGE = Trouble("ImagePullBackOff", "image x cannot be had")
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def shard(
    ordinal: int, revision: str = NEW, state: ShardState = ShardState.READY, trouble: Trouble | None = None
) -> Shard:
    name = f"chat-{revision}-{ordinal}"
    return Shard(name, f"uid-{name}", revision, ordinal, state, node="node-1", trouble=trouble)


def facts(*shards: Shard, router: RouterState = ROUTER, **more: Any) -> Facts:
    return replace(Facts(3, "pool=chat", GOAL, Observed(shards, router)), **more)


def failing(ordinal: int, revision: str = NEW) -> Shard:
    return shard(ordinal, revision, ShardState.FAILING, BAD_IMAGE)


BOTH = (shard(0), shard(1))
STARTING = shard(1, state=ShardState.STARTING)


def told(found: Facts) -> dict[str, str]:
    """Each condition as +Reason or -Reason."""
    return {kind.value: ("+" if item.holds else "-") + item.reason for kind, item in verdicts(found).items()}


@pytest.mark.parametrize(
    ("found", "ready", "available", "progressing", "degraded"),
    [
        pytest.param(facts(*BOTH), "+AllReady", "+Serving", "-Settled", "-AsExpected", id="settled"),
        pytest.param(
            facts(router=RouterState()), "-ShardsNotReady", "-NoReadyShard", "+StartingShards", "-AsExpected", id="new"
        ),
        pytest.param(
            facts(shard(0), STARTING), "-ShardsNotReady", "+Serving", "+StartingShards", "-AsExpected", id="half"
        ),
        pytest.param(
            facts(*BOTH, router=RouterState()), "-RouterNotReady", "-NoReadyRouter", "+StartingRouter", "-AsExpected",
            id="no router yet",
        ),
        pytest.param(
            facts(*BOTH, router=RouterState(1, False)), "-RouterNotReady", "+Serving", "+StartingRouter", "-AsExpected",
            id="router is replaced",
        ),
        pytest.param(
            facts(shard(0, OLD), shard(1, OLD), shard(0, state=ShardState.STARTING)),
            "-ShardsNotReady", "+Serving", "+RollingOut", "-AsExpected",
            id="rollout",
        ),
        pytest.param(
            facts(shard(0, OLD), shard(1, OLD), failing(0)),
            "-ImagePullBackOff", "+Serving", "-Stalled", "+ImagePullBackOff",
            id="rollout to a bad image: the old ones serve",
        ),
        pytest.param(
            facts(shard(0, OLD), failing(1, OLD)), "-ShardsNotReady", "+Serving", "+RollingOut", "-AsExpected",
            id="a failing shard that goes anyway is no trouble",
        ),
        pytest.param(
            facts(*BOTH, shard(2)), "+AllReady", "+Serving", "+RemovingShards", "-AsExpected", id="scale down"
        ),
        pytest.param(
            facts(*BOTH, shard(2, state=ShardState.DRAINING)),
            "+AllReady", "+Serving", "+RemovingShards", "-AsExpected",
            id="draining",
        ),
        pytest.param(
            facts(goal=replace(GOAL, desired=0)), "+AllReady", "+ScaledToZero", "-Settled", "-AsExpected", id="zero"
        ),
        pytest.param(
            facts(shard(0), paused=True), "-ShardsNotReady", "+Serving", "-Paused", "-AsExpected", id="paused"
        ),
        pytest.param(
            facts(*BOTH, refused=Trouble("InvalidSpec", "spec.x: bad")),
            "-InvalidSpec", "+Serving", "-InvalidSpec", "+InvalidSpec",
            id="unreadable spec",
        ),
        pytest.param(
            facts(*BOTH, problems=(Trouble("NameConflict", "Service chat"),)),
            "-NameConflict", "+Serving", "-Settled", "+NameConflict",
            id="name taken",
        ),
        pytest.param(
            facts(*BOTH, router=RouterState(0, False, BAD_IMAGE)),
            "-ImagePullBackOff", "-NoReadyRouter", "-Stalled", "+ImagePullBackOff",
            id="router fails",
        ),
    ],
)  # fmt: skip
def test_conditions(found: Facts, ready: str, available: str, progressing: str, degraded: str) -> None:
    assert told(found) == {
        "Ready": ready,
        "Available": available,
        "Progressing": progressing,
        "Degraded": degraded,
        "ScalingActive": "-Manual",
    }


def test_a_message_names_the_shard_and_the_cause() -> None:
    degraded = verdicts(facts(shard(0), failing(1)))[ConditionType.DEGRADED]
    assert degraded.message == "chat-new00000-1: image x cannot be had"


def test_counts_put_every_shard_in_one_place() -> None:
    found = facts(
        shard(0),
        STARTING,
        failing(3),
        shard(4, state=ShardState.PENDING),
        shard(0, OLD),
        shard(1, OLD, ShardState.DRAINING),
    )
    counts = report(found, TokenPoolStatus(), NOW).shards
    assert counts.model_dump() == {"desired": 2, "current": 5, "ready": 2, "pending": 3, "draining": 1, "updated": 1}


def test_the_whole_status() -> None:
    found = facts(*BOTH, load=PoolLoad(42, 7))
    assert as_json(report(found, TokenPoolStatus(), NOW)) == {
        "observedGeneration": 3,
        "selector": "pool=chat",
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": NOW,
                "observedGeneration": 3,
            }
            for kind, status, reason, message in [
                ("Ready", "True", "AllReady", "2 of 2 shards of revision new00000 ready."),
                ("Available", "True", "Serving", "2 shards ready."),
                ("Progressing", "False", "Settled", "Everything is as the spec wants it."),
                ("Degraded", "False", "AsExpected", "Nothing fails."),
                ("ScalingActive", "False", "Manual", "The pool has spec.shards.min shards."),
            ]
        ],
        "shards": {"desired": 2, "current": 2, "ready": 2, "pending": 0, "draining": 0, "updated": 2},
        "readySummary": "2/2",
        "utilization": 42,
        "tokensPerSecond": 7,
        "revision": {"current": NEW, "updating": "", "model": "file:///model", "image": "engine:1"},
        "shardDetails": [
            {"name": f"chat-new00000-{i}", "node": "node-1", "revision": NEW, "state": "Ready", "message": ""}
            for i in range(2)
        ],
    }


def test_equal_facts_give_an_equal_status_at_another_time() -> None:
    first = report(facts(*BOTH), TokenPoolStatus(), NOW)
    assert report(facts(*BOTH), first, LATER) == first


def test_a_reason_that_the_crd_would_refuse_is_replaced() -> None:
    found = facts(*BOTH, problems=(Trouble("not a word", "m"),))
    assert {item.reason for item in report(found, TokenPoolStatus(), NOW).conditions[:1]} == {"Unknown"}


def test_only_a_flip_moves_the_transition_time() -> None:
    first = report(facts(shard(0), STARTING), TokenPoolStatus(), NOW)
    second = report(facts(*BOTH), first, LATER)
    times = {item.type.value: item.last_transition_time for item in second.conditions}
    assert times == {"Ready": LATER, "Available": NOW, "Progressing": LATER, "Degraded": NOW, "ScalingActive": NOW}


def test_details_are_bounded_and_sorted() -> None:
    many = [shard(ordinal) for ordinal in range(150)]
    details = report(facts(*reversed(many)), TokenPoolStatus(), NOW).shard_details
    assert len(details) == 100
    assert [item.name for item in details] == sorted(item.name for item in many)[:100]


@pytest.mark.parametrize(
    ("shards", "before", "current", "updating"),
    [
        ((), "", "", NEW),
        ((STARTING,), OLD, OLD, NEW),
        ((shard(0, OLD), shard(1, OLD), shard(0)), OLD, OLD, NEW),
        ((shard(0, OLD), shard(0)), OLD, NEW, NEW),
        (BOTH, OLD, NEW, ""),
    ],
)
def test_revisions(shards: tuple[Shard, ...], before: str, current: str, updating: str) -> None:
    previous = TokenPoolStatus(revision=Revision(current=before))
    found = report(facts(*shards), previous, NOW).revision
    assert (found.current, found.updating) == (current, updating)


def test_an_unreadable_spec_keeps_the_last_goal() -> None:
    previous = report(facts(*BOTH), TokenPoolStatus(), NOW)
    assert last_goal(previous) == GOAL


def test_an_unreadable_status_is_computed_anew() -> None:
    assert read_status({"status": {"shards": "many"}}) == TokenPoolStatus()


def condition(kind: ConditionType, status: Any, reason: str) -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message="m", last_transition_time=NOW, observed_generation=1
    )


READY, DEGRADED, PROGRESSING = ConditionType.READY, ConditionType.DEGRADED, ConditionType.PROGRESSING


@pytest.mark.parametrize(
    ("before", "after", "event"),
    [
        ([], (READY, "True", "AllReady"), Announcement("Normal", "AllReady", "m")),
        ([], (READY, "False", "ShardsNotReady"), None),
        ([(READY, "True", "AllReady")], (READY, "True", "AllReady"), None),
        ([], (DEGRADED, "True", "ModelNotFound"), Announcement("Warning", "ModelNotFound", "m")),
        ([(DEGRADED, "True", "A")], (DEGRADED, "True", "B"), Announcement("Warning", "B", "m")),
        ([], (DEGRADED, "False", "AsExpected"), None),
        (
            [(DEGRADED, "True", "A")],
            (DEGRADED, "False", "AsExpected"),
            Announcement("Normal", "Recovered", "Nothing fails any more."),
        ),
        ([], (PROGRESSING, "True", "RollingOut"), Announcement("Normal", "RollingOut", "m")),
        ([], (PROGRESSING, "False", "Settled"), None),
        ([], (PROGRESSING, "False", "Paused"), Announcement("Normal", "Paused", "m")),
    ],
)
def test_what_is_worth_an_event(before: list[Any], after: Any, event: Announcement | None) -> None:
    previous = TokenPoolStatus(conditions=tuple(condition(*item) for item in before))
    current = TokenPoolStatus(conditions=(condition(*after),))
    assert announcements(previous, current) == ((event,) if event else ())
