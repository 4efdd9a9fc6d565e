"""Who picks the shard: the router's own sharding, several routers of it, and a poller for contrast."""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from router_bench.replay.shard import SimulatedShard
from router_bench.replay.traces import Arrival
from tokenpool_router.sharding import DynamicSharding, Policy, Shard

FIRST_ANSWER_TOKENS = 256.0
LEARNING = 0.02


class Held(Protocol):
    """What a request holds on a shard."""

    def correct(self, tokens: int) -> None:
        """So many are left."""

    def progress(self, tokens: int) -> None:
        """So many more are done."""

    def release(self) -> None:
        """All are."""


class Chooser(Protocol):
    """Picks shards."""

    def choose(self, arrival: Arrival, expected: int, now: float) -> tuple[int, Held]:
        """The shard's number, and what the request holds there. `expected` answer tokens are a guess."""


class Routers:
    """One router or several; clients pick one at random. Every `hear_seconds`, each at times of its own, one hears what
    the others have.
    """

    def __init__(
        self,
        policy: Policy,
        speeds: Sequence[float],
        *,
        count: int = 1,
        hear_seconds: float = math.inf,
        seed: int = 0,
    ) -> None:
        shards = [Shard(str(number), speed=speed) for number, speed in enumerate(speeds)]
        self._random = Random(seed)
        self._routers = [DynamicSharding(policy=policy, random=Random(seed + number)) for number in range(count)]
        self._hear_seconds = hear_seconds
        self._hears_at = [hear_seconds * (1 + number / count) for number in range(count)]
        for router in self._routers:
            router.set_shards(shards)

    def choose(self, arrival: Arrival, expected: int, now: float) -> tuple[int, Held]:
        """One router's pick."""
        number = 0 if len(self._routers) == 1 else self._random.randrange(len(self._routers))
        if now >= self._hears_at[number]:
            self._hears_at[number] = now + self._hear_seconds * self._random.uniform(0.8, 1.2)
            self._hear(number, now)
        lease = self._routers[number].assign_shard(arrival.prompt_tokens + expected, now=now, prefix=arrival.blocks)
        if lease is None:
            raise RuntimeError("no shard, though none is ever full here")
        return int(lease.shard.id), lease

    def _hear(self, number: int, now: float) -> None:
        others = [router.loads(now=now) for other, router in enumerate(self._routers) if other != number]
        for loads in zip(*others, strict=True):
            tokens, requests = sum(load.outstanding_tokens for load in loads), sum(load.in_flight for load in loads)
            self._routers[number].set_elsewhere(loads[0].shard.id, tokens, requests)


class Nothing:
    """What a poller's request holds: it keeps no accounts."""

    def correct(self, tokens: int) -> None:
        """No account."""

    def progress(self, tokens: int) -> None:
        """No account."""

    def release(self) -> None:
        """No account."""


class Poller:
    """Asks the shards every second how much they have, and sends all requests of a second by those answers."""

    def __init__(self, shards: Sequence[SimulatedShard], load: Callable[[SimulatedShard], float], seed: int) -> None:
        self._shards, self._load, self._random = shards, load, Random(seed)
        self._polled_at, self._loads = float("-inf"), [0.0] * len(shards)

    def choose(self, _arrival: Arrival, _expected: int, now: float) -> tuple[int, Held]:
        """The least of the last poll; ties at random."""
        if now - self._polled_at >= 1.0:
            self._polled_at, self._loads = now, [self._load(shard) for shard in self._shards]
        least = min(self._loads)
        return self._random.choice([number for number, load in enumerate(self._loads) if load == least]), Nothing()


def tokens_on(shard: SimulatedShard) -> float:
    """Prompt tokens not yet computed, and answer tokens not yet written as far as anybody could know: their mean."""
    prompts = sum(one.prompt_left for one in (*shard.waiting, *shard.prefilling))
    return prompts + FIRST_ANSWER_TOKENS / 2 * requests_on(shard)


def requests_on(shard: SimulatedShard) -> float:
    """Requests there."""
    return len(shard.waiting) + len(shard.prefilling) + len(shard.decoding)
