"""The five conditions of a pool: what holds, in one word for programs and one sentence for people. Pure.

Every text is a function of the facts alone, so that equal facts never cause a write.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tokenpool_api.status import ConditionType
from tokenpool_operator.observe import Observed, Shard
from tokenpool_operator.rollout import Goal
from tokenpool_operator.trouble import Trouble
from tokenpool_operator.utilization import NOTHING_KNOWN, PoolLoad


@dataclass(frozen=True)
class Facts:
    """All that one pass knows about its pool."""

    generation: int
    selector: str
    goal: Goal
    observed: Observed
    load: PoolLoad = NOTHING_KNOWN
    paused: bool = False
    refused: Trouble | None = None
    """What is wrong with the spec itself."""
    problems: tuple[Trouble, ...] = ()
    """What the API server would not let us do."""

    @property
    def shards(self) -> tuple[Shard, ...]:
        """All shards there are."""
        return self.observed.shards

    def updated(self) -> int:
        """Ready shards of the wanted revision."""
        return sum(shard.is_ready and shard.revision == self.goal.revision for shard in self.shards)

    def settled_shards(self) -> int:
        """Ready shards that are where the goal wants them."""
        return sum(shard.is_ready and self.goal.has_place_for(shard) for shard in self.shards)


@dataclass(frozen=True)
class Verdict:
    """One condition without its bookkeeping."""

    holds: bool
    reason: str
    message: str


def verdicts(facts: Facts) -> dict[ConditionType, Verdict]:
    """All five, always."""
    return {
        ConditionType.READY: ready(facts),
        ConditionType.AVAILABLE: available(facts),
        ConditionType.PROGRESSING: progressing(facts),
        ConditionType.DEGRADED: degraded(facts),
        ConditionType.SCALING_ACTIVE: Verdict(False, "Manual", "The pool has spec.shards.min shards."),
    }


def available(facts: Facts) -> Verdict:
    """Whether a request would be answered."""
    answering = sum(shard.is_ready for shard in facts.shards)
    if facts.goal.desired == 0 and not answering:
        return Verdict(True, "ScaledToZero", "The pool is to have no shards.")
    if not answering:
        return Verdict(False, "NoReadyShard", "No shard is ready.")
    if not facts.observed.router.available:
        return Verdict(False, "NoReadyRouter", "No router is ready.")
    return Verdict(True, "Serving", f"{_count(answering, 'shard')} ready.")


def ready(facts: Facts) -> Verdict:
    """Whether everything is as the spec wants it."""
    trouble = worst(facts)
    if trouble:
        return Verdict(False, trouble.reason, trouble.message)
    if facts.settled_shards() < facts.goal.desired:
        return Verdict(False, "ShardsNotReady", f"{_of_wanted(facts)}.")
    if not facts.observed.router.settled:
        return Verdict(False, "RouterNotReady", "The router is not yet as the spec wants it.")
    return Verdict(True, "AllReady", f"{_of_wanted(facts)}.")


def progressing(facts: Facts) -> Verdict:
    """Whether something is under way, and what."""
    if facts.refused:
        return Verdict(False, facts.refused.reason, facts.refused.message)
    if facts.paused:
        return Verdict(False, "Paused", "spec.paused is true: nothing is changed.")
    movement = _movement(facts)
    if movement is None:
        return Verdict(False, "Settled", "Everything is as the spec wants it.")
    trouble = worst(facts)
    if trouble:
        return Verdict(False, "Stalled", f"{movement.message} It waits: {trouble.message}")
    return movement


def _movement(facts: Facts) -> Verdict | None:
    """What is not yet as wanted."""
    old = sum(shard.is_live and shard.revision != facts.goal.revision for shard in facts.shards)
    if old:
        return Verdict(True, "RollingOut", f"{_of_wanted(facts)}; {_count(old, 'shard')} of another revision left.")
    if facts.settled_shards() < facts.goal.desired:
        return Verdict(True, "StartingShards", f"{_of_wanted(facts)}.")
    leaving = sum(not facts.goal.has_place_for(shard) or shard.is_terminating for shard in facts.shards)
    if leaving:
        return Verdict(True, "RemovingShards", f"{_count(leaving, 'shard')} leaving.")
    if not facts.observed.router.settled:
        return Verdict(True, "StartingRouter", f"{_count(facts.observed.router.available, 'router')} available.")
    return None


def degraded(facts: Facts) -> Verdict:
    """Whether somebody should look, and why."""
    trouble = worst(facts)
    if trouble:
        return Verdict(True, trouble.reason, trouble.message)
    return Verdict(False, "AsExpected", "Nothing fails.")


def worst(facts: Facts) -> Trouble | None:
    """The first trouble, by who has to act: the user's spec, the cluster's refusals, shards, routers."""
    return next(_troubles(facts), None)


def _troubles(facts: Facts) -> Iterator[Trouble]:
    if facts.refused:
        yield facts.refused
    yield from facts.problems
    # A shard that is on its way out says nothing about the pool that is wanted.
    for shard in facts.shards:
        if shard.trouble and not shard.is_terminating and facts.goal.has_place_for(shard):
            yield Trouble(shard.trouble.reason, f"{shard.name}: {shard.trouble.message}")
    if facts.observed.router.trouble:
        yield Trouble(facts.observed.router.trouble.reason, f"router: {facts.observed.router.trouble.message}")


def _of_wanted(facts: Facts) -> str:
    return f"{facts.settled_shards()} of {facts.goal.desired} shards of revision {facts.goal.revision} ready"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
