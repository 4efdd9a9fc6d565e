"""The members, and the pick."""

from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Final, final

from tokenpool_router.sharding.affinity import PrefixIndex
from tokenpool_router.sharding.lease import Lease
from tokenpool_router.sharding.policy import Policy
from tokenpool_router.sharding.ranks import Ranks
from tokenpool_router.sharding.seat import Seat
from tokenpool_router.sharding.shard import Shard, ShardLoad, TooManyShards, UnknownShard

# Draws of PowerOfTwo that may hit a shard which cannot take the request, before all are looked at.
MOST_DRAWS: Final = 16


@final
class DynamicSharding:
    """Picks shards for requests. One thread's; every call is O(log n) or better, but for `set_shards` and `loads`."""

    __slots__ = (
        "_dirt",
        "_index",
        "_max_shards",
        "_policy",
        "_random",
        "_ranks",
        "_resting",
        "_seats",
        "_told",
        "_turn",
        "_virtual",
    )

    def __init__(
        self, max_shards: int = 10_000, policy: Policy = Policy.LEAST_TOKENS, *, random: Random | None = None
    ) -> None:
        if max_shards < 1:
            raise ValueError(f"max_shards must be at least 1: {max_shards}")
        self._max_shards, self._policy = max_shards, policy
        self._random = random or Random()  # noqa: S311 - to spread load
        self._seats: dict[str, Seat] = {}
        self._ranks = Ranks()
        self._dirt: list[Seat] = []
        """Seats whose place in the ranks is not up to date."""
        self._told: list[Seat] = []
        """Seats whose own numbers nobody was told of yet."""
        self._resting: list[tuple[float, int, Seat]] = []
        """Who rests until when; a heap."""
        self._turn = 0
        self._virtual = 0.0
        self._index = PrefixIndex()

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, shard_id: str) -> bool:
        return shard_id in self._seats

    def set_shards(self, shards: Iterable[Shard]) -> None:
        """Replace the members. Who stays keeps its account; a new address under an old id is a new shard.

        Raises TooManyShards, and then nothing changes.
        """
        wanted = {shard.id: shard for shard in shards}
        if len(wanted) > self._max_shards:
            raise TooManyShards(f"{len(wanted)} shards, but at most {self._max_shards} are allowed")
        kept: dict[str, Seat] = {}
        for shard_id, shard in wanted.items():
            seat = self._seats.get(shard_id)
            if seat is None or seat.shard.address != shard.address:
                seat = Seat(shard, self._dirt, self._told)
                seat.virtual = self._virtual
            else:
                seat.shard = shard
                seat.settle_pace()
            seat.mark_own()
            kept[shard_id] = seat
        for shard_id, seat in self._seats.items():
            if kept.get(shard_id) is not seat:
                seat.is_gone = True
                self._ranks.drop(seat)
        self._seats = kept

    # --- picking ---------------------------------------------------------------------------------------------------
    def assign_shard(
        self, tokens: int, *, now: float = 0.0, exclude: Collection[str] = (), prefix: Sequence[int] = ()
    ) -> Lease | None:
        """Lease the shard that the policy picks; None when none can take a request now.

        `tokens` is what the request is worth, at least 0 (ValueError); `prefix` are hashes of the prompt's leading
        blocks, each standing for all before it. Shards that failed lately are picked when there is nobody else.
        """
        if tokens < 0:
            raise ValueError(f"tokens must not be negative: {tokens}")
        self._settle(now)
        saved = 0
        if prefix and self._policy is Policy.PREFIX_AFFINITY:
            seat, saved = self._nearest(tokens, now, exclude, prefix)
        elif self._policy is Policy.POWER_OF_TWO:
            seat = self._drawn(tokens, now, exclude)
        else:
            seat = self._least(tokens, exclude)
        if seat is None:
            seat = self._last_resort(tokens, now, exclude)
        if seat is None:
            return None
        self._turn += 1
        seat.turn = self._turn
        seat.virtual += 1 / seat.pace
        self._virtual = max(self._virtual, seat.virtual - 1 / seat.pace)
        if prefix and self._policy is Policy.PREFIX_AFFINITY:
            self._index.remember(prefix, seat.shard.id)
        return Lease(seat, tokens - saved)

    def _least(self, tokens: int, exclude: Collection[str]) -> Seat | None:
        if self._policy is Policy.LEAST_CONNECTIONS:
            return self._ranks.best(1, exclude, is_turn=False)
        return self._ranks.best(tokens, exclude, is_turn=self._policy is Policy.ROUND_ROBIN)

    def _drawn(self, tokens: int, now: float, exclude: Collection[str]) -> Seat | None:
        seats = tuple(self._seats.values())
        found: Seat | None = None
        for _ in range(MOST_DRAWS if seats else 0):
            seat = seats[self._random.randrange(len(seats))]
            if seat is found or not self._is_open(seat, now) or seat.shard.id in exclude:
                continue
            if found is not None:
                return seat if _score(seat, tokens) < _score(found, tokens) else found
            found = seat
        return found or self._ranks.best(tokens, exclude, is_turn=False)

    def _nearest(
        self, tokens: int, now: float, exclude: Collection[str], prefix: Sequence[int]
    ) -> tuple[Seat | None, int]:
        """The least load, where what a shard need not compute again is no load.

        The saving is part of this request's own tokens, so a shard that is picked for it has at most so much more to
        do than the least loaded one: affinity cannot pile work up.
        """
        best = self._ranks.best(tokens, exclude, is_turn=False)
        if best is None:
            return None, 0
        saved = 0
        for shard_id, blocks in self._index.matches(prefix).items():
            seat = self._seats.get(shard_id)
            if seat is None or not self._is_open(seat, now) or shard_id in exclude:
                continue
            saving = tokens * blocks // (len(prefix) + 1)
            if (_score(seat, tokens - saving), saved) < (_score(best, tokens - saved), saving):
                best, saved = seat, saving
        return best, saved

    def _is_open(self, seat: Seat, now: float) -> bool:
        return not (seat.shard.draining or seat.is_full or seat.ejected_until > now or seat.busy_until > now)

    def _last_resort(self, tokens: int, now: float, exclude: Collection[str]) -> Seat | None:
        """Nobody well can take it: try one that rests for its failures."""
        found: Seat | None = None
        for seat in self._seats.values():
            can = seat.ejected_until > now and not (seat.shard.draining or seat.is_full or seat.busy_until > now)
            if can and seat.shard.id not in exclude and (found is None or _order(seat, tokens) < _order(found, tokens)):
                found = seat
        return found

    def _settle(self, now: float) -> None:
        """Bring the ranks up to date."""
        resting = self._resting
        while resting and resting[0][0] <= now:
            heappop(resting)[2].mark()
        if not self._dirt:
            return
        for seat in self._dirt:
            seat.is_dirty = False
            if seat.is_gone:
                continue
            if self._is_open(seat, now):
                self._rank(seat)
            else:
                self._ranks.drop(seat)
        self._dirt.clear()
        self._ranks.compact(len(self._seats))

    def _rank(self, seat: Seat) -> None:
        tokens, requests = seat.tokens + seat.elsewhere_tokens, seat.requests + seat.elsewhere_requests
        if self._policy is Policy.LEAST_CONNECTIONS:
            self._ranks.put(seat, requests, tokens)
        elif self._policy is Policy.ROUND_ROBIN:
            self._ranks.put(seat, seat.virtual, 0)
        else:
            self._ranks.put(seat, tokens, requests)

    # --- what is heard of shards -----------------------------------------------------------------------------------
    def failed(self, shard_id: str, *, now: float) -> None:
        """It did not answer: leave it alone for a while, longer each time. One that left is no matter."""
        seat = self._seats.get(shard_id)
        if seat:
            seat.fail(now)
            self._rest(seat, seat.ejected_until)

    def succeeded(self, shard_id: str) -> None:
        """It answered."""
        seat = self._seats.get(shard_id)
        if seat:
            seat.succeed()

    def busy(self, shard_id: str, *, until: float) -> None:
        """It said that it is full: not before then, or before one of its requests ends."""
        seat = self._seats.get(shard_id)
        if seat:
            seat.busy_until = until
            seat.mark()
            self._rest(seat, until)

    def _rest(self, seat: Seat, until: float) -> None:
        self._turn += 1
        heappush(self._resting, (until, self._turn, seat))

    def set_elsewhere(self, shard_id: str, tokens: int, requests: int) -> None:
        """What others have on it."""
        seat = self._seats.get(shard_id)
        if seat and (seat.elsewhere_tokens != tokens or seat.elsewhere_requests != requests):
            seat.elsewhere_tokens, seat.elsewhere_requests = max(tokens, 0), max(requests, 0)
            seat.mark()

    # --- looking ---------------------------------------------------------------------------------------------------
    def load(self, shard_id: str, *, now: float) -> ShardLoad:
        """The account of one shard. Raises UnknownShard."""
        seat = self._seats.get(shard_id)
        if seat is None:
            raise UnknownShard(shard_id)
        return ShardLoad(seat.shard, seat.tokens, seat.requests, seat.ejected_until > now)

    def has_any(self, *, now: float) -> bool:
        """Whether there is a shard that is neither leaving nor resting for its failures, be it full or not."""
        return any(not seat.shard.draining and seat.ejected_until <= now for seat in self._seats.values())

    def loads(self, *, now: float) -> list[ShardLoad]:
        """The accounts of all shards, by id."""
        return [self.load(shard_id, now=now) for shard_id in sorted(self._seats)]

    def changed(self) -> list[tuple[str, int, int]]:
        """Id, outstanding tokens and requests of the shards whose own numbers changed since the last call."""
        found = [(seat.shard.id, seat.tokens, seat.requests) for seat in self._told if not seat.is_gone]
        for seat in self._told:
            seat.is_told = True
        self._told.clear()
        return found


def _score(seat: Seat, tokens: int) -> float:
    return (seat.tokens + seat.elsewhere_tokens + tokens) / seat.pace


def _order(seat: Seat, tokens: int) -> tuple[float, int, int]:
    return _score(seat, tokens), seat.requests + seat.elsewhere_requests, seat.turn
