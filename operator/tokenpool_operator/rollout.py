"""Which shards to create and which to delete next. Pure: a picture and a goal in, one step out.

No memory between steps: the same rules start a pool, scale it, replace a revision, undo half a rollout and heal.
Three bounds hold at every step: never more than desired + 1 live shards by our doing, never fewer ready ones than
desired by our doing, and a shard that leaves keeps its name until it is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpool_operator.observe import Shard

SURGE = 1


@dataclass(frozen=True)
class Goal:
    """What the pool's shards should become."""

    desired: int
    revision: str
    model: str = ""
    image: str = ""

    def has_place_for(self, shard: Shard) -> bool:
        """Whether the shard is of the wanted revision and its ordinal is wanted."""
        return shard.revision == self.revision and 0 <= shard.ordinal < self.desired


@dataclass(frozen=True)
class Removal:
    """A shard to delete, and why."""

    shard: Shard
    why: str


@dataclass(frozen=True)
class Step:
    """Ordinals of the wanted revision to create, shards to remove first, and when to look again without an event."""

    create: tuple[int, ...] = ()
    remove: tuple[Removal, ...] = ()
    again_seconds: float | None = None


def next_step(shards: Sequence[Shard], goal: Goal, *, now: float, replace_seconds: float = 0.0) -> Step:
    """The next step towards the goal; an empty one at the goal or while waiting."""
    ended = [shard for shard in shards if shard.ended and not shard.is_terminating]
    due = [shard for shard in ended if now - shard.created_at >= replace_seconds]
    removals = [
        *(Removal(shard, "ended") for shard in due),
        *(Removal(shard, "not wanted and not ready") for shard in _stuck(shards, goal)),
        *(Removal(shard, "not wanted any more") for shard in _spare(shards, goal)),
    ]
    waits = [replace_seconds - (now - shard.created_at) for shard in ended if shard not in due]
    return Step(
        create=_missing(shards, goal)[: _room(shards, removals, goal)],
        remove=tuple(removals),
        again_seconds=min(waits, default=None),
    )


def _stuck(shards: Sequence[Shard], goal: Goal) -> list[Shard]:
    """Not wanted and not serving: nobody loses by their leaving, and a bad revision must not block a good one."""
    return [shard for shard in shards if shard.is_live and not shard.is_ready and not goal.has_place_for(shard)]


def _spare(shards: Sequence[Shard], goal: Goal) -> list[Shard]:
    """Ready shards that may leave now: the old revision first, then the highest ordinals."""
    ready = [shard for shard in shards if shard.is_ready]
    unwanted = [shard for shard in ready if not goal.has_place_for(shard)]
    unwanted.sort(key=lambda shard: (shard.revision == goal.revision, -shard.ordinal, shard.name))
    return unwanted[: max(len(ready) - goal.desired, 0)]


def _missing(shards: Sequence[Shard], goal: Goal) -> tuple[int, ...]:
    """Wanted ordinals whose name is free."""
    taken = {shard.ordinal for shard in shards if shard.revision == goal.revision}
    return tuple(ordinal for ordinal in range(goal.desired) if ordinal not in taken)


def _room(shards: Sequence[Shard], removals: Sequence[Removal], goal: Goal) -> int:
    """How many shards may be added. Shards on their way out do not count: a dead node would hold them for ever."""
    live = sum(shard.is_live for shard in shards) - sum(removal.shard.is_live for removal in removals)
    return max(goal.desired + SURGE - live, 0)
