"""The planner: a table of single steps, then whole rollouts played to the end with the invariants at each step."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_api.status import ShardState
from tokenpool_operator.observe import Shard
from tokenpool_operator.rollout import Goal, Step, next_step

OLD, NEW = "0ld00000", "new00000"
READY, STARTING, DRAINING = ShardState.READY, ShardState.STARTING, ShardState.DRAINING
NUMBERS = itertools.count()


def shard(revision: str, ordinal: int, state: ShardState = READY, *, ended: bool = False, at: float = 0.0) -> Shard:
    name = f"p-{revision}-{ordinal}"
    return Shard(name, f"uid-{next(NUMBERS)}", revision, ordinal, state, ended=ended, created_at=at)


def ended(revision: str, ordinal: int, at: float = 0.0) -> Shard:
    return shard(revision, ordinal, ShardState.FAILING, ended=True, at=at)


def told(step: Step) -> tuple[tuple[int, ...], list[str]]:
    return step.create, [f"{item.shard.revision[:3]}{item.shard.ordinal}" for item in step.remove]


@pytest.mark.parametrize(
    ("shards", "desired", "create", "remove"),
    [
        pytest.param([], 3, (0, 1, 2), [], id="a new pool starts all shards at once"),
        pytest.param([], 0, (), [], id="nothing wanted, nothing done"),
        pytest.param([shard(NEW, 0), shard(NEW, 1)], 2, (), [], id="at the goal it is silent"),
        pytest.param([shard(NEW, 0)], 3, (1, 2), [], id="scale up"),
        pytest.param([shard(NEW, i) for i in range(4)], 2, (), ["new3", "new2"], id="scale down from the top, at once"),
        pytest.param([shard(NEW, 0), shard(NEW, 1)], 0, (), ["new1", "new0"], id="scale to zero"),
        pytest.param([shard(NEW, 1)], 2, (0,), [], id="a gap is filled"),
        pytest.param([shard(NEW, 0, DRAINING), shard(NEW, 1)], 2, (), [], id="a leaving shard keeps its name"),
        pytest.param([shard(OLD, 0), shard(OLD, 1)], 2, (0,), [], id="rollout begins with one surge shard"),
        pytest.param([shard(OLD, 0), shard(OLD, 1), shard(NEW, 0, STARTING)], 2, (), [], id="and waits for it"),
        pytest.param([shard(OLD, 0), shard(OLD, 1), shard(NEW, 0)], 2, (1,), ["0ld1"], id="then swaps one"),
        pytest.param(
            [shard(OLD, 0), shard(OLD, 1, STARTING)], 2, (0, 1), ["0ld1"], id="old and not ready goes at once"
        ),
        pytest.param([shard(OLD, 0, STARTING)], 1, (0,), ["0ld0"], id="a good spec heals a stuck bad one"),
        pytest.param([ended(NEW, 0), shard(NEW, 1)], 2, (), ["new0"], id="a failed shard is deleted before its return"),
        pytest.param(
            [shard(NEW, 0), shard(NEW, 1, STARTING), shard(NEW, 2)], 2, (), [], id="scale down waits for a slow keeper"
        ),
        pytest.param(
            [shard(NEW, 0), shard(NEW, 1), shard(NEW, 2, STARTING)], 2, (), ["new2"], id="scale down of a slow extra"
        ),
        pytest.param(
            [shard(OLD, i) for i in range(4)], 2, (0,), ["0ld3", "0ld2"], id="scale down and rollout in one edit"
        ),
        pytest.param([shard(NEW, -1, STARTING)], 1, (0,), ["new-1"], id="a shard without an ordinal has no place"),
    ],
)
def test_next_step(shards: list[Shard], desired: int, create: tuple[int, ...], remove: list[str]) -> None:
    assert told(next_step(shards, Goal(desired, NEW), now=100.0)) == (create, remove)


def test_a_shard_that_fails_at_once_is_not_replaced_at_once() -> None:
    step = next_step([ended(NEW, 0, at=97.0)], Goal(1, NEW), now=100.0, replace_seconds=10.0)
    assert step == Step(again_seconds=7.0)
    later = next_step([ended(NEW, 0, at=97.0)], Goal(1, NEW), now=107.0, replace_seconds=10.0)
    assert [item.why for item in later.remove] == ["ended"]


class World:
    """Shards as the cluster has them: steps are carried out; readiness, failure and disappearance come by chance."""

    def __init__(self, shards: list[Shard]) -> None:
        self.shards = {shard.name: shard for shard in shards}

    def carry_out(self, step: Step) -> None:
        for removal in step.remove:
            self.shards[removal.shard.name] = replace(removal.shard, state=DRAINING)
        for ordinal in step.create:
            new = shard(NEW, ordinal, ShardState.PENDING)
            assert new.name not in self.shards, "a taken name must not be created"
            self.shards[new.name] = new

    def move(self, name: str, how: str) -> None:
        now = self.shards.get(name)
        if now is None:
            return
        if now.is_terminating:
            del self.shards[name]
        elif how == "fail" and not now.ended:
            self.shards[name] = replace(now, state=ShardState.FAILING, ended=True)
        elif not now.ended:
            self.shards[name] = replace(now, state=READY)

    def ready(self) -> int:
        return sum(item.is_ready for item in self.shards.values())

    def live(self) -> int:
        return sum(item.is_live for item in self.shards.values())

    def is_at(self, goal: Goal) -> bool:
        present = list(self.shards.values())
        return len(present) == goal.desired and all(item.is_ready and goal.has_place_for(item) for item in present)


def step_with_invariants(world: World, goal: Goal) -> Step:
    shards = list(world.shards.values())
    step = next_step(shards, goal, now=0.0)
    ready, live = world.ready(), world.live()
    world.carry_out(step)
    assert world.live() <= max(live, goal.desired + 1)
    assert world.ready() >= min(ready, goal.desired)
    assert len({item.shard.uid for item in step.remove}) == len(step.remove)
    # Nothing moved since: the same look again must ask for nothing.
    assert next_step(list(world.shards.values()), goal, now=0.0) == Step()
    return step


def play(world: World, goal: Goal, chances: st.DataObject | None = None, failures: int = 0) -> int:
    """Step and move the world until the goal stands still. Returns the number of steps that did something."""
    moves = 0
    for _ in range(400):
        step = step_with_invariants(world, goal)
        moves += step != Step()
        if world.is_at(goal):
            assert step == Step()
            return moves
        movable = sorted(
            name for name, item in world.shards.items() if item.is_terminating or not (item.is_ready or item.ended)
        )
        assert movable, f"stuck: {sorted(world.shards.values(), key=lambda item: item.name)}"
        name = movable[0] if chances is None else chances.draw(st.sampled_from(movable))
        fails = failures > 0 and chances is not None and chances.draw(st.booleans())
        failures -= fails
        world.move(name, "fail" if fails else "advance")
    raise AssertionError("the rollout does not end")


@pytest.mark.parametrize("desired", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("old", [0, 1, 2, 5])
def test_a_rollout_ends(old: int, desired: int) -> None:
    play(World([shard(OLD, ordinal) for ordinal in range(old)]), Goal(desired, NEW))


STATES = st.sampled_from([READY, STARTING, ShardState.PENDING, DRAINING, ShardState.FAILING])
ANY_SHARD = st.builds(
    shard, st.sampled_from([OLD, "0ld11111", NEW]), st.integers(-1, 5), STATES, ended=st.booleans(), at=st.just(0.0)
).map(lambda item: replace(item, ended=item.ended and item.state is ShardState.FAILING))


@given(
    st.lists(ANY_SHARD, max_size=8, unique_by=lambda item: item.name), st.integers(0, 5), st.integers(0, 4), st.data()
)
def test_from_any_mess_to_the_goal(shards: list[Shard], desired: int, failures: int, chances: st.DataObject) -> None:
    play(World(shards), Goal(desired, NEW), chances, failures)


def test_reverting_in_mid_rollout_returns_to_the_old_shards() -> None:
    world = World([shard(NEW, 0), shard(NEW, 1), shard(OLD, 0, STARTING)])
    play(world, Goal(2, NEW))
    assert sorted(world.shards) == [f"p-{NEW}-0", f"p-{NEW}-1"]
