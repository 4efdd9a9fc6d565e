"""Shards in order of their load, kept so that neither a pick nor a change looks at all of them.

Shards of one pace share a heap. A change pushes a new entry and leaves the old one to be found outdated at the top,
so all costs are those of a heap: logarithmic, and spread over the changes that caused them.
"""

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Final, final

from tokenpool_router.sharding.seat import Seat

# (load, second thoughts, turn, stamp, tie, seat)
Entry = tuple[float, int, int, int, int, Seat]
SLACK: Final = 64


@final
class Ranks:
    """Heaps by pace. A seat is in at most one of them."""

    __slots__ = ("_heaps", "_ties", "_valid")

    def __init__(self) -> None:
        self._heaps: dict[float, list[Entry]] = {}
        self._valid: dict[float, int] = {}
        self._ties = 0

    def put(self, seat: Seat, load: float, second: int) -> None:
        """Where the seat stands now; what was said of it before is void."""
        seat.stamp += 1
        self._ties += 1
        heap = self._heaps.get(seat.pace)
        if heap is None:
            heap = self._heaps[seat.pace] = []
        heappush(heap, (load, second, seat.turn, seat.stamp, self._ties, seat))

    def drop(self, seat: Seat) -> None:
        """It is not to be picked."""
        seat.stamp += 1

    def compact(self, seats: int) -> None:
        """Throw outdated entries out when they are more than the seats themselves."""
        if sum(map(len, self._heaps.values())) <= 2 * seats + SLACK:
            return
        for pace in tuple(self._heaps):
            kept = [entry for entry in self._heaps[pace] if entry[3] == entry[5].stamp]
            if kept:
                heapify(kept)
                self._heaps[pace] = kept
            else:
                del self._heaps[pace]

    def best(self, tokens: int, exclude: Collection[str], *, is_turn: bool) -> Seat | None:
        """Who has the least to do for its pace, with so much more; `is_turn` where loads are paces' sums already."""
        found: Entry | None = None
        least = 0.0
        for pace, heap in self._heaps.items():
            entry = self._top(heap, exclude)
            if entry is None:
                continue
            score = entry[0] + 1 / pace if is_turn else (entry[0] + tokens) / pace
            if found is None or (score, entry[1], entry[2]) < (least, found[1], found[2]):
                found, least = entry, score
        return found[5] if found else None

    def _top(self, heap: list[Entry], exclude: Collection[str]) -> Entry | None:
        aside: list[Entry] = []
        found: Entry | None = None
        while heap:
            entry = heap[0]
            if entry[3] != entry[5].stamp:
                heappop(heap)
            elif exclude and entry[5].shard.id in exclude:
                aside.append(heappop(heap))
            else:
                found = entry
                break
        for entry in aside:
            heappush(heap, entry)
        return found
