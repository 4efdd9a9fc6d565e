"""Which shard gets the next request: the one with the fewest outstanding tokens. Pure: no I/O, time is an argument.

A lease is what one request holds on one shard. It shrinks as tokens stream and is given back exactly once.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter

FIRST_EJECTION_SECONDS = 1.0
LONGEST_EJECTION_SECONDS = 30.0


@dataclass(frozen=True)
class Member:
    """A shard that may be picked: pod name and "host:port"."""

    name: str
    address: str


class UnknownShard(KeyError):
    """No shard of that name is a member."""


@dataclass(eq=False, slots=True)
class _Seat:
    member: Member
    outstanding: int = 0
    in_flight: int = 0
    picked_at: int = 0
    failures: int = 0
    ejected_until: float = 0.0


_RANK = attrgetter("outstanding", "in_flight", "picked_at")


@dataclass(eq=False, slots=True)
class Lease:
    """One request's share of a shard. `release` gives it back."""

    member: Member
    tokens: int
    _seat: _Seat
    _open: bool = True

    def progress(self, tokens: int) -> None:
        """So many of the tokens are done; never below zero."""
        done = min(max(tokens, 0), self.tokens) if self._open else 0
        self.tokens -= done
        self._seat.outstanding -= done

    def release(self) -> None:
        """Give the rest back. Raises RuntimeError the second time."""
        if not self._open:
            raise RuntimeError(f"the lease on {self.member.name} was released already")
        self.progress(self.tokens)
        self._open = False
        self._seat.in_flight -= 1


@dataclass(frozen=True)
class SeatLoad:
    """What is known of one member."""

    member: Member
    outstanding_tokens: int
    in_flight: int
    ejected: bool


class Balancer:
    """The members and what each has to do. A pick looks at all of them: some 0.1 ms at a thousand, a few µs at ten."""

    def __init__(self) -> None:
        self._seats: dict[str, _Seat] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._seats)

    def set_members(self, members: Iterable[Member]) -> None:
        """Replace the members. Who stays keeps its account; a new address under an old name is a new shard."""
        kept: dict[str, _Seat] = {}
        for member in members:
            seat = self._seats.get(member.name)
            kept[member.name] = seat if seat and seat.member == member else _Seat(member)
        self._seats = kept

    def acquire(self, tokens: int, *, now: float, exclude: Collection[Member] = ()) -> Lease | None:
        """Lease the least loaded shard, or None when there is none. Among equals the one picked longest ago."""
        if tokens < 0:
            raise ValueError(f"tokens must not be negative: {tokens}")
        free = [seat for seat in self._seats.values() if not exclude or seat.member not in exclude]
        # Shards that failed lately are for when there is nobody else.
        open_seats = [seat for seat in free if seat.ejected_until <= now] or free
        if not open_seats:
            return None
        seat = min(open_seats, key=_RANK)
        self._turn += 1
        seat.picked_at = self._turn
        seat.outstanding += tokens
        seat.in_flight += 1
        return Lease(seat.member, tokens, seat)

    def failed(self, name: str, *, now: float) -> None:
        """The shard did not answer: leave it alone for a while, longer each time. One that left is no matter."""
        seat = self._seats.get(name)
        if seat:
            seconds = min(FIRST_EJECTION_SECONDS * 2**seat.failures, LONGEST_EJECTION_SECONDS)
            seat.failures += 1
            seat.ejected_until = now + seconds

    def succeeded(self, name: str) -> None:
        """The shard answered."""
        seat = self._seats.get(name)
        if seat:
            seat.failures, seat.ejected_until = 0, 0.0

    def load(self, name: str, *, now: float) -> SeatLoad:
        """The account of one shard. Raises UnknownShard."""
        if name not in self._seats:
            raise UnknownShard(name)
        seat = self._seats[name]
        return SeatLoad(seat.member, seat.outstanding, seat.in_flight, seat.ejected_until > now)

    def loads(self, *, now: float) -> list[SeatLoad]:
        """The accounts of all shards, by name."""
        return [self.load(name, now=now) for name in sorted(self._seats)]
