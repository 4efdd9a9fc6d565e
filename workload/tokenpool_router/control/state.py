"""What the control process knows, for the admin port, the workers and the other routers."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from tokenpool_api.wire import RouterLoad, RouterShardLoad
from tokenpool_router import series
from tokenpool_router.callers import Caller
from tokenpool_router.callers.caller import to_message
from tokenpool_router.control.line import Message
from tokenpool_router.control.membership import Members
from tokenpool_router.control.rates import Recent
from tokenpool_router.control.slots import Slots
from tokenpool_router.control.supervisor import Supervisor
from tokenpool_router.control.totals import Totals
from tokenpool_router.gauges import Gauges
from tokenpool_router.sharding import Shard

SHARD_SLOTS: Final = 10_000
CALLER_SLOTS: Final = 1_000
MOST_VOCABULARY: Final = 200_000

Pair = tuple[int, int]


class Control:
    """One router's knowledge. Workers' rows come first in the table, the last one is all other routers'."""

    def __init__(self, workers: int, members: Members) -> None:
        self.members = members
        self.gauges = Gauges.create(workers + 1, SHARD_SLOTS + CALLER_SLOTS)
        self._elsewhere_row = workers
        self._shard_slots = Slots(0, SHARD_SLOTS, self.gauges.clear_slot)
        self._caller_slots = Slots(SHARD_SLOTS, CALLER_SLOTS, self.gauges.clear_slot)
        self._slots_of_shards: dict[str, int] = {}
        self._slots_of_callers: dict[str, int] = {}
        self.totals = Totals()
        self.recent = Recent(asyncio.get_running_loop().time())
        self._vocabulary: Counter[int] = Counter()
        self.shards: list[Shard] = []
        self.draining = False
        self.supervisor: Supervisor

    # --- to the workers --------------------------------------------------------------------------------------------
    def members_changed(self) -> None:
        """Tell the workers which shards there are."""
        self.shards = self.members.shards()
        self._slots_of_shards = self._shard_slots.settle(shard.id for shard in self.shards)
        entries = [
            {
                "id": shard.id,
                "address": shard.address,
                "weight": shard.weight,
                "speed": shard.speed,
                "draining": shard.draining,
                "max_requests": shard.max_requests,
                "max_tokens": shard.max_tokens,
                "revision": shard.revision,
                "slot": self._slots_of_shards[shard.id],
            }
            for shard in self.shards
        ]
        self.supervisor.tell({"kind": "roster", "generation": self.members.generation, "shards": entries})

    def callers_changed(self, callers: tuple[Caller, ...] | None) -> None:
        """Tell the workers who may come in; None for everybody."""
        if callers is None:
            self.supervisor.tell({"kind": "callers", "callers": None})
            return
        self._slots_of_callers = slots = self._caller_slots.settle(caller.name for caller in callers)
        entries = [to_message(caller) | {"slot": slots[caller.name]} for caller in callers]
        self.supervisor.tell({"kind": "callers", "callers": entries})

    # --- from the workers ------------------------------------------------------------------------------------------
    def worker_reports(self, row: int, message: Message) -> None:
        """One worker's counts and what it has under way."""
        self.totals.report(row, message)
        if len(self._vocabulary) < MOST_VOCABULARY:
            self._vocabulary.update({int(token): count for token, count in message["vocabulary"].items()})

    def worker_ends(self, row: int) -> None:
        """One worker is gone."""
        self.totals.end(row)

    # --- to and from the other routers -----------------------------------------------------------------------------
    def own_numbers(self) -> tuple[dict[str, Pair], dict[str, Pair]]:
        """By shard and by caller, all workers together: what is not elsewhere."""
        row = self._elsewhere_row
        shards = {name: self.gauges.others(row, slot) for name, slot in self._slots_of_shards.items()}
        callers = {name: self.gauges.others(row, slot) for name, slot in self._slots_of_callers.items()}
        return shards, callers

    def set_elsewhere(self, shards: Mapping[str, Pair], callers: Mapping[str, Pair]) -> None:
        """The other routers' numbers."""
        for slots, found in ((self._slots_of_shards, shards), (self._slots_of_callers, callers)):
            for name, slot in slots.items():
                self.gauges.set(self._elsewhere_row, slot, *found.get(name, (0, 0)))

    def take_vocabulary(self) -> dict[int, int]:
        """Token ids and how often they were seen since the last call."""
        taken, self._vocabulary = self._vocabulary, Counter()
        return dict(taken)

    # --- to the admin port -----------------------------------------------------------------------------------------
    @property
    def not_ready(self) -> str:
        """Why clients should not be sent here; empty when they should."""
        if self.draining:
            return "draining"
        if not self.members.are_known:
            return "waiting for the list of shards"
        return self.supervisor.trouble

    async def load(self, now: float) -> RouterLoad:
        """The body of `/load`, from fresh reports."""
        reports = await self.supervisor.gather()
        self.recent.add(self.totals.sums(), now)
        return RouterLoad(
            queued_requests=sum(report["queued_requests"] for report in reports),
            queued_tokens=sum(report["queued_tokens"] for report in reports),
            shards=tuple(_shard_load(shard, reports) for shard in self.shards),
            workers=len(reports),
            roster_generation=min((report["roster_generation"] for report in reports), default=0),
            arriving_prompt_tokens_per_second=self.recent.per_second(series.ARRIVED_PROMPT),
            arriving_answer_tokens_per_second=self.recent.per_second(series.ARRIVED_ANSWER),
            drain_tokens_per_second=sum(report["drain_tokens_per_second"] for report in reports),
            revisions=self.recent.revisions(),
        )

    def rosters(self) -> dict[str, Any]:
        """What each worker has applied, beside what it was told."""
        shards = {shard.id: {"weight": shard.weight, "draining": shard.draining} for shard in self.shards}
        applied = [worker.report["roster_generation"] for worker in self.supervisor.workers if worker and worker.report]
        return {"generation": self.members.generation, "appliedByWorkers": applied, "shards": shards}


def _shard_load(shard: Shard, reports: list[Message]) -> RouterShardLoad:
    found = [report["shards"][shard.id] for report in reports if shard.id in report["shards"]]
    return RouterShardLoad(
        name=shard.id,
        address=shard.address,
        outstanding_tokens=sum(one["outstanding_tokens"] for one in found),
        in_flight_requests=sum(one["in_flight_requests"] for one in found),
        ejected=bool(found) and all(one["ejected"] for one in found),
        weight=shard.weight,
        draining=shard.draining,
    )
