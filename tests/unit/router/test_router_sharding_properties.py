"""Over any history accounts add up, and every pick is the one that a look at all shards would give."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tokenpool_router.sharding import DynamicSharding, Lease, Policy, Shard

IDS = st.sampled_from("abcdef")
PACES = (0.25, 0.5, 1.0, 2.0)
shards = st.builds(
    Shard,
    id=IDS,
    address=st.sampled_from(["1", "2"]),
    weight=st.sampled_from([0.5, 1.0]),
    speed=st.sampled_from([0.5, 1.0, 2.0]),
    draining=st.booleans(),
    max_requests=st.sampled_from([0, 0, 1, 3]),
    max_tokens=st.sampled_from([0, 0, 50]),
)


class Histories(RuleBasedStateMachine):
    """A model beside the sharding: the open leases by shard, and what was told of each."""

    leases: Any = Bundle("leases")
    policy = Policy.LEAST_TOKENS

    def __init__(self) -> None:
        super().__init__()
        self.sharding = DynamicSharding(policy=self.policy)
        self.members: dict[str, Shard] = {}
        self.open: dict[str, list[Lease]] = {}
        self.elsewhere: dict[str, tuple[int, int]] = {}
        self.ejected: dict[str, float] = {}
        self.failures: dict[str, int] = {}
        self.share: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        self.now = 0.0

    @rule(wanted=st.lists(shards, max_size=6, unique_by=lambda shard: shard.id))
    def set_shards(self, wanted: list[Shard]) -> None:
        self.sharding.set_shards(wanted)
        for shard in wanted:
            if self.members.get(shard.id, shard).address != shard.address or shard.id not in self.members:
                for known in (self.elsewhere, self.ejected, self.failures, self.share, self.busy, self.open):
                    known.pop(shard.id, None)  # type: ignore[attr-defined]
        self.members = {shard.id: shard for shard in wanted}

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def load(self, shard_id: str) -> tuple[int, int]:
        tokens, requests = self.elsewhere.get(shard_id, (0, 0))
        held = self.open.get(shard_id, [])
        return tokens + sum(lease.tokens for lease in held), requests + len(held)

    def is_full(self, shard: Shard) -> bool:
        tokens, requests = self.load(shard.id)
        return bool(shard.max_requests and requests >= shard.max_requests) or bool(
            shard.max_tokens and tokens >= shard.max_tokens
        )

    def can(self, shard: Shard, exclude: set[str]) -> bool:
        rests = self.busy.get(shard.id, 0.0) > self.now
        return not (shard.draining or rests or self.is_full(shard) or shard.id in exclude)

    def score(self, shard: Shard, tokens: int) -> float:
        held, requests = self.load(shard.id)
        pace = shard.weight * shard.speed * self.share.get(shard.id, 1.0)
        return (requests + 1 if self.policy is Policy.LEAST_CONNECTIONS else held + tokens) / pace

    @rule(target=leases, tokens=st.integers(0, 60), exclude=st.sets(IDS, max_size=2))
    def assign(self, tokens: int, exclude: set[str]) -> Lease | None:
        candidates = [shard for shard in self.members.values() if self.can(shard, exclude)]
        well = [shard for shard in candidates if self.ejected.get(shard.id, 0.0) <= self.now]
        lease = self.sharding.assign_shard(tokens, now=self.now, exclude=exclude)
        if not candidates:
            assert lease is None
            return None
        assert lease is not None
        choices = well or candidates
        assert lease.shard in choices
        if well or self.policy is Policy.LEAST_TOKENS:
            assert self.score(lease.shard, tokens) == min(self.score(shard, tokens) for shard in choices)
        self.open.setdefault(lease.shard.id, []).append(lease)
        return lease

    @rule(lease=leases, tokens=st.integers(0, 80))
    def progress(self, lease: Lease | None, tokens: int) -> None:
        if lease:
            lease.progress(tokens)

    @rule(lease=leases, tokens=st.integers(0, 80))
    def correct(self, lease: Lease | None, tokens: int) -> None:
        if lease:
            lease.correct(tokens)

    @rule(lease=consumes(leases))
    def release(self, lease: Lease | None) -> None:
        if lease:
            lease.release()
            held = self.open.get(lease.shard.id, [])
            if lease in held:
                held.remove(lease)
                self.busy.pop(lease.shard.id, None)

    @rule(shard_id=IDS, tokens=st.integers(0, 100), requests=st.integers(0, 4))
    def elsewhere_changes(self, shard_id: str, tokens: int, requests: int) -> None:
        self.sharding.set_elsewhere(shard_id, tokens, requests)
        if shard_id in self.members:
            self.elsewhere[shard_id] = tokens, requests

    @rule(shard_id=IDS)
    def fails(self, shard_id: str) -> None:
        self.sharding.failed(shard_id, now=self.now)
        if shard_id in self.members:
            failures = self.failures.get(shard_id, 0)
            self.ejected[shard_id] = self.now + min(2.0**failures, 30.0)
            self.failures[shard_id], self.share[shard_id] = failures + 1, 1 / 8

    @rule(shard_id=IDS)
    def answers(self, shard_id: str) -> None:
        self.sharding.succeeded(shard_id)
        if shard_id in self.members:
            if self.share.get(shard_id, 1.0) < 1.0:
                self.share[shard_id] *= 2
                self.ejected[shard_id] = 0.0
            else:
                self.failures[shard_id] = 0

    @rule(shard_id=IDS, seconds=st.floats(0.1, 3.0))
    def is_busy(self, shard_id: str, seconds: float) -> None:
        self.sharding.busy(shard_id, until=self.now + seconds)
        if shard_id in self.members:
            self.busy[shard_id] = self.now + seconds

    @invariant()
    def accounts_add_up(self) -> None:
        for load in self.sharding.loads(now=self.now):
            held = self.open.get(load.shard.id, [])
            assert (load.outstanding_tokens, load.in_flight) == (sum(lease.tokens for lease in held), len(held))


class ConnectionHistories(Histories):
    policy = Policy.LEAST_CONNECTIONS


TestLeastTokens = Histories.TestCase
TestLeastConnections = ConnectionHistories.TestCase
for case in (TestLeastTokens, TestLeastConnections):
    case.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
