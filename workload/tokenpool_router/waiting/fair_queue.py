"""A queue that is bounded in tokens, strict between priorities, and fair between callers.

Fair means: callers that always have something waiting get tokens in proportion to their weights, however many
requests each of them has (start-time fair queueing). Who was away has no credit: its turn starts at the present.
"""

from collections import deque
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar, final

Item = TypeVar("Item")


class Priority(StrEnum):
    """Who is served before whom, always."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


ORDER: Final = (Priority.HIGH, Priority.NORMAL, Priority.LOW)


class QueueFull(Exception):
    """There is no room for so many tokens."""


@final
class Ticket(Generic[Item]):
    """One that waits. `is_waiting` ends when it is removed."""

    __slots__ = ("caller", "is_waiting", "item", "priority", "tokens")

    def __init__(self, item: Item, tokens: int, caller: str, priority: Priority) -> None:
        self.item, self.tokens, self.caller, self.priority = item, tokens, caller, priority
        self.is_waiting = True


class _Line(Generic[Item]):
    """One caller's tickets in one class, first come first served."""

    __slots__ = ("live", "start", "tickets", "weight")

    def __init__(self) -> None:
        self.tickets: deque[Ticket[Item]] = deque()
        self.live = 0
        """Tickets that still wait."""
        self.start = 0.0
        """Virtual time at which its first ticket is due."""
        self.weight = 1.0

    def first(self) -> Ticket[Item] | None:
        """The next that still waits."""
        while self.tickets and not self.tickets[0].is_waiting:
            self.tickets.popleft()
        return self.tickets[0] if self.tickets else None


class _Band(Generic[Item]):
    """One priority: its callers' lines, by virtual time."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line[Item]] = {}
        self._heap: list[tuple[float, int, str]] = []
        """Start, order of coming, caller. An entry whose start is not its line's is outdated."""
        self._now = 0.0
        self._entries = 0
        self.live = 0

    def push(self, ticket: Ticket[Item], weight: float) -> None:
        """Behind the caller's others."""
        line = self._lines.get(ticket.caller)
        if line is None:
            line = self._lines[ticket.caller] = _Line()
        line.weight = weight
        if not line.live:
            line.tickets.clear()
            line.start = max(line.start, self._now)
            self._enter(ticket.caller, line)
        line.tickets.append(ticket)
        line.live += 1
        self.live += 1

    def _enter(self, caller: str, line: _Line[Item]) -> None:
        self._entries += 1
        heappush(self._heap, (line.start, self._entries, caller))

    def peek(self) -> Ticket[Item] | None:
        """Whose turn it is."""
        while self._heap:
            start, _, caller = self._heap[0]
            line = self._lines[caller]
            ticket = line.first() if line.start == start else None
            if ticket:
                return ticket
            heappop(self._heap)
        return None

    def remove(self, ticket: Ticket[Item], *, is_served: bool) -> None:
        """It waits no more; only who is served pays for it."""
        line = self._lines[ticket.caller]
        line.live -= 1
        self.live -= 1
        if not self.live:
            # Nobody waits: what is past is settled.
            self._lines.clear()
            self._heap.clear()
            self._now = 0.0
        elif is_served:
            self._now = max(self._now, line.start)
            line.start += max(ticket.tokens, 1) / line.weight
            if line.live:
                self._enter(ticket.caller, line)


class FairQueue(Generic[Item]):
    """All bands together. Every call is O(log n) on average; a removal is only noted, and found later."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._bands: dict[Priority, _Band[Item]] = {priority: _Band() for priority in ORDER}
        self.tokens = 0
        """Of all that waits."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(
        self, item: Item, *, tokens: int, caller: str = "", weight: float = 1.0, priority: Priority = Priority.NORMAL
    ) -> Ticket[Item]:
        """Take a place. Raises QueueFull when there is no room for so many tokens."""
        if self.tokens + tokens > self._max_tokens:
            raise QueueFull
        ticket = Ticket(item, tokens, caller, priority)
        self._bands[priority].push(ticket, weight)
        self.tokens += tokens
        self._length += 1
        return ticket

    def peek(self) -> Ticket[Item] | None:
        """Whose turn it is; the same until it is served or leaves, or somebody more urgent comes."""
        for priority in ORDER:
            band = self._bands[priority]
            if band.live:
                return band.peek()
        return None

    def serve(self, ticket: Ticket[Item]) -> None:
        """It got what it waited for."""
        self._end(ticket, is_served=True)

    def leave(self, ticket: Ticket[Item]) -> None:
        """It does not want to wait any more. To leave twice is no matter."""
        self._end(ticket, is_served=False)

    def _end(self, ticket: Ticket[Item], *, is_served: bool) -> None:
        if not ticket.is_waiting:
            return
        ticket.is_waiting = False
        self._bands[ticket.priority].remove(ticket, is_served=is_served)
        self.tokens -= ticket.tokens
        self._length -= 1
