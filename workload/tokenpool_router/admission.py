"""The waiting room: requests that no shard can take wait here, in order, bounded in tokens and in time."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tokenpool_router.balancer import Lease
from tokenpool_router.errors import NO_SHARD, QUEUE_FULL, Refusal


class Refused(Exception):
    """The request cannot be served now."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(eq=False)
class _Place:
    tokens: int
    is_choosy: bool
    acquire: Callable[[], Lease | None]
    lease: "asyncio.Future[Lease]" = field(repr=False)


class WaitingRoom:
    """First come, first served. `shards_changed` is to be called whenever a shard may have become free."""

    def __init__(self, max_tokens: int, timeout_seconds: float) -> None:
        self._max_tokens, self._timeout_seconds = max_tokens, timeout_seconds
        self._places: deque[_Place] = deque()
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._places)

    async def lease(self, tokens: int, acquire: Callable[[], Lease | None], *, is_choosy: bool = False) -> Lease:
        """A lease at once if there is one that nobody before us could take, else wait for it. Raises Refused.

        Who is choosy does not take just any shard, and holds up nobody behind it. A caller that is cancelled leaves
        the room, and a lease that it just got goes back.
        """
        self.shards_changed()
        found = acquire()
        if found:
            return found
        if self.tokens + tokens > self._max_tokens:
            raise Refused(QUEUE_FULL)
        place = _Place(tokens, is_choosy, acquire, asyncio.get_running_loop().create_future())
        self._places.append(place)
        self.tokens += tokens
        try:
            # `wait` leaves the future alone at the deadline, so a lease that comes just then is not lost.
            await asyncio.wait({place.lease}, timeout=self._timeout_seconds)
            if not place.lease.done():
                raise Refused(NO_SHARD)
            return place.lease.result()
        except asyncio.CancelledError:
            if place.lease.done():
                place.lease.result().release()
            raise
        finally:
            self._leave(place)

    def shards_changed(self) -> None:
        """Serve those who wait, in order. When there is no shard for one who takes any, there is none for the rest."""
        for place in tuple(self._places) if self._places else ():
            lease = place.acquire()
            if lease:
                self._leave(place)
                place.lease.set_result(lease)
            elif not place.is_choosy:
                return

    def _leave(self, place: _Place) -> None:
        if place in self._places:
            self._places.remove(place)
            self.tokens -= place.tokens
