"""Where requests get their shards: at once, or after waiting in a queue that is fair and bounded."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from tokenpool_router.http.refusals import NO_ROOM, NO_SHARD, QUEUE_FULL, QUEUE_TIMEOUT, Refusal
from tokenpool_router.http.responder import Responder
from tokenpool_router.http.upstream import Pool
from tokenpool_router.journey.caution import RetryBudget
from tokenpool_router.journey.door import Door
from tokenpool_router.journey.journey import Journey, Outcome
from tokenpool_router.journey.ledger import Ledger
from tokenpool_router.sharding import DynamicSharding, Lease, Shard
from tokenpool_router.waiting import DrainRate, FairQueue, Priority, QueueFull, Ticket, retry_after

EVERYBODY: Final = ""


@dataclass(frozen=True)
class Deadlines:
    """How long things may take, in seconds."""

    queue_seconds: float = 30.0
    first_byte_seconds: float = 600.0
    stall_seconds: float = 300.0
    total_seconds: float = 7200.0


class Desk:
    """What all requests of a worker share. One event loop, no locks."""

    def __init__(
        self,
        *,
        sharding: DynamicSharding,
        queue: "FairQueue[Journey]",
        pool: Pool,
        door: Door,
        ledger: Ledger,
        deadlines: Deadlines,
        random: Random,
        now: Callable[[], float],
    ) -> None:
        self.sharding, self.queue, self.pool = sharding, queue, pool
        self.door, self.ledger, self.deadlines, self.now = door, ledger, deadlines, now
        self.budget = RetryBudget()
        self.drain_rate = DrainRate()
        self.journeys: set[Journey] = set()
        self._random = random
        self._again: list[Journey] = []
        """Who waits for another shard than those that failed it. They are few, and hold up nobody."""
        self._addresses: dict[str, str] = {}
        self._is_serving = False

    def serve(self, responder: Responder) -> Journey | None:
        """Begin to answer a request; None when that is done already."""
        return Journey(self, responder, self.now()).begin()

    def set_shards(self, shards: Iterable[Shard]) -> None:
        """The pool's shards as of now."""
        known = list(shards)
        before = self._addresses
        self._addresses = {shard.id: shard.address for shard in known}
        # A shard that came back under the same name has failed nobody yet.
        renewed = {shard.id for shard in known if before.get(shard.id) != shard.address}
        for journey in self._again:
            journey.tried -= renewed
        self.sharding.set_shards(known)
        self.pool.keep_only(set(self._addresses.values()))
        self.serve_waiting()

    @property
    def waiting(self) -> int:
        """Requests without a shard."""
        return len(self.queue) + len(self._again)

    @property
    def waiting_tokens(self) -> int:
        """What they ask for."""
        return self.queue.tokens + sum(journey.tokens for journey in self._again)

    # --- the journeys' calls ---------------------------------------------------------------------------------------
    def arrived(self, journey: Journey) -> None:
        """A request is here."""
        self.journeys.add(journey)
        self.budget.earn()

    def seek(self, journey: Journey) -> Lease | Refusal | None:
        """A lease at once if nobody has to wait, a refusal if too many wait; else None, and a lease comes later."""
        now = self.now()
        if journey.tried or not self.queue:
            lease = self._assign(journey, now)
            if lease:
                return lease
        journey.wait_until = now + self.deadlines.queue_seconds
        if journey.tried:
            self._again.append(journey)
            journey.place = self._again
            return None
        return self._queue(journey)

    def _queue(self, journey: Journey) -> Refusal | None:
        caller = journey.caller
        try:
            journey.place = self.queue.push(
                journey,
                tokens=journey.tokens,
                caller=caller.name if caller else EVERYBODY,
                weight=caller.weight if caller else 1.0,
                priority=caller.priority if caller else Priority.NORMAL,
            )
        except QueueFull:
            return self._with_time(QUEUE_FULL if self.sharding.has_any(now=self.now()) else NO_ROOM, journey.tokens)
        self.freed()
        return None

    def _assign(self, journey: Journey, now: float) -> Lease | None:
        return self.sharding.assign_shard(journey.tokens, now=now, exclude=journey.tried, prefix=journey.prefix)

    def _with_time(self, refusal: Refusal, tokens: int = 0) -> Refusal:
        """When to come back: what is to be done before, at the speed at which work gets done."""
        backlog = self.waiting_tokens + tokens
        return refusal.after(retry_after(backlog, self.drain_rate.rate(self.now()), self._random))

    def waited_in_vain(self) -> Refusal:
        """What to say to those whose time in the queue is up."""
        return self._with_time(QUEUE_TIMEOUT if self.sharding.has_any(now=self.now()) else NO_SHARD)

    def leave(self, journey: Journey) -> None:
        """It waits no more."""
        place, journey.place = journey.place, None
        if place is self._again:
            self._again.remove(journey)
        elif isinstance(place, Ticket):
            self.queue.leave(place)

    def concluded(self, journey: Journey) -> None:
        """A request is at its end, and what it had is free."""
        now = self.now()
        self.journeys.discard(journey)
        done = journey.told_prompt_tokens + journey.passed_tokens
        if done:
            self.drain_rate.add(done, now)
        if journey.is_admitted and journey.caller and self.door.callers:
            self.door.callers.end(journey.caller, journey.tokens, done)
        if journey.outcome is Outcome.ANSWERED and journey.told_prompt_tokens:
            facts = journey.facts
            self.door.models.of(facts.model).learn(facts, journey.told_prompt_tokens, journey.passed_tokens)
        self.ledger.concluded(journey, now)
        if self.queue or self._again:
            self.freed()

    # --- waiting ---------------------------------------------------------------------------------------------------
    def freed(self) -> None:
        """Look after those who wait, once this turn of the loop has settled."""
        if not self._is_serving:
            self._is_serving = True
            asyncio.get_running_loop().call_soon(self.serve_waiting)

    def serve_waiting(self) -> None:
        """Give out shards until there is none for the next in line."""
        self._is_serving = False
        now = self.now()
        for journey in tuple(self._again):
            self._give(journey, now)
        while ticket := self.queue.peek():
            if not self._give(ticket.item, now):
                return

    def _give(self, journey: Journey, now: float) -> bool:
        lease = self._assign(journey, now)
        if lease is None:
            return False
        if isinstance(journey.place, Ticket):
            self.queue.serve(journey.place)
        self.leave(journey)
        try:
            journey.leased(lease)
        except Exception:
            journey.on_bug()
        return True

    def sweep(self, now: float) -> None:
        """End what took too long, and try again what waits: a shard's rest may be over."""
        for journey in tuple(self.journeys):
            try:
                journey.sweep(now)
            except Exception:
                journey.on_bug()
        if self.queue or self._again:
            self.serve_waiting()
