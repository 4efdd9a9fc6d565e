"""The whole status of a pool from the facts of one pass, and what of it is worth an event. Pure."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from tokenpool_api.status import (
    MAX_SHARD_DETAILS,
    Condition,
    ConditionType,
    Revision,
    ShardCounts,
    ShardDetail,
    ShardState,
    TokenPoolStatus,
)
from tokenpool_operator.conditions import Facts, Verdict, verdicts
from tokenpool_operator.observe import Shard
from tokenpool_operator.rollout import Goal

Raw = dict[str, Any]
MESSAGE_LENGTH = 1024
# Some reasons are other programs' words; the CRD takes only such.
REASON = re.compile(r"[A-Za-z][A-Za-z0-9]{0,127}")


@dataclass(frozen=True)
class Announcement:
    """An event to tell: a flip of a condition that people wait for or should look at."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def read_status(pool: Raw) -> TokenPoolStatus:
    """The status that was last written; an empty one where it cannot be read, for it is computed anew anyway."""
    try:
        return TokenPoolStatus.model_validate(pool.get("status") or {})
    except ValidationError:
        return TokenPoolStatus()


def last_goal(previous: TokenPoolStatus) -> Goal:
    """The goal that the last readable spec had, for a pass that cannot read the spec."""
    told = previous.revision
    return Goal(previous.shards.desired, told.updating or told.current, told.model, told.image)


def report(facts: Facts, previous: TokenPoolStatus, now: str) -> TokenPoolStatus:
    """Compute everything. `now` is used only for conditions that flip."""
    counts = _counts(facts)
    return TokenPoolStatus(
        observed_generation=facts.generation,
        selector=facts.selector,
        conditions=_conditions(verdicts(facts), facts.generation, previous, now),
        shards=counts,
        ready_summary=f"{counts.ready}/{counts.desired}",
        utilization=facts.load.utilization,
        tokens_per_second=facts.load.tokens_per_second,
        revision=_revision(facts, previous),
        shard_details=tuple(map(_detail, sorted(facts.shards, key=lambda shard: shard.name)))[:MAX_SHARD_DETAILS],
    )


def as_json(status: TokenPoolStatus) -> Raw:
    """What is compared with the API server's copy and sent to it."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def announcements(previous: TokenPoolStatus, current: TokenPoolStatus) -> tuple[Announcement, ...]:
    """Events for conditions whose status or reason is another one now."""
    before = {condition.type: (condition.status, condition.reason) for condition in previous.conditions}
    were_true = {condition.type for condition in previous.conditions if condition.status == "True"}
    changed = [item for item in current.conditions if before.get(item.type) != (item.status, item.reason)]
    told = [_announce(item, was_true=item.type in were_true) for item in changed]
    return tuple(item for item in told if item)


def _announce(condition: Condition, *, was_true: bool) -> Announcement | None:
    match condition.type, condition.status:
        case ConditionType.DEGRADED, "True":
            return Announcement("Warning", condition.reason, condition.message)
        case ConditionType.DEGRADED, "False" if was_true:
            return Announcement("Normal", "Recovered", "Nothing fails any more.")
        case (ConditionType.PROGRESSING, "True") | (ConditionType.READY, "True"):
            return Announcement("Normal", condition.reason, condition.message)
        case ConditionType.PROGRESSING, "False" if condition.reason == "Paused":
            return Announcement("Normal", condition.reason, condition.message)
        case _:
            return None


def _conditions(
    found: dict[ConditionType, Verdict], generation: int, previous: TokenPoolStatus, now: str
) -> tuple[Condition, ...]:
    before = {condition.type: condition for condition in previous.conditions}
    return tuple(_condition(kind, verdict, generation, before.get(kind), now) for kind, verdict in found.items())


def _condition(kind: ConditionType, verdict: Verdict, generation: int, before: Condition | None, now: str) -> Condition:
    status: Literal["True", "False"] = "True" if verdict.holds else "False"
    flipped = before is None or before.status != status
    return Condition(
        type=kind,
        status=status,
        reason=verdict.reason if REASON.fullmatch(verdict.reason) else "Unknown",
        message=verdict.message[:MESSAGE_LENGTH],
        last_transition_time=now if flipped or before is None else before.last_transition_time,
        observed_generation=generation,
    )


def _counts(facts: Facts) -> ShardCounts:
    states = Counter(shard.state for shard in facts.shards)
    ready, draining = states[ShardState.READY], states[ShardState.DRAINING]
    return ShardCounts(
        desired=facts.goal.desired,
        current=len(facts.shards) - draining,
        ready=ready,
        draining=draining,
        pending=len(facts.shards) - ready - draining,
        updated=facts.updated(),
    )


def _revision(facts: Facts, previous: TokenPoolStatus) -> Revision:
    wanted = facts.goal.revision
    serving = Counter(shard.revision for shard in facts.shards if shard.is_ready)
    # Most ready shards decide; in a draw the wanted revision; without any, what was so before.
    most = max(serving, key=lambda revision: (serving[revision], revision == wanted), default=previous.revision.current)
    others = any(shard.is_live and shard.revision != wanted for shard in facts.shards)
    is_rolling = others or (most != wanted and facts.goal.desired > 0)
    return Revision(
        current=most,
        updating=wanted if is_rolling else "",
        model=facts.goal.model,
        image=facts.goal.image,
    )


def _detail(shard: Shard) -> ShardDetail:
    return ShardDetail(
        name=shard.name,
        node=shard.node,
        revision=shard.revision,
        state=shard.state,
        message=shard.trouble.message if shard.trouble else "",
    )
