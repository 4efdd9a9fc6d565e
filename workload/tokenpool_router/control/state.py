"""What the control process knows, for the admin port, the workers and the other routers."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from tokenpool_router.callers import Caller
from tokenpool_router.callers.caller import to_message
from tokenpool_router.control.line import Message
from tokenpool_router.control.membership import Members
from tokenpool_router.control.peers import Peers
from tokenpool_router.control.rates import Recent
from tokenpool_router.control.slots import Slots
from tokenpool_router.control.supervisor import Supervisor
from tokenpool_router.control.totals import Totals
from tokenpool_router.control.vocabulary import VocabularyCounts
from tokenpool_router.gauges import Gauges
from tokenpool_router.sharding import Shard

SHARD_SLOTS: Final = 10_000
CALLER_SLOTS: Final = 1_000

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
        self.vocabulary: VocabularyCounts | None = None
        """Only where somebody takes them."""
        self._elsewhere: tuple[Mapping[str, Pair], Mapping[str, Pair]] = ({}, {})
        self.peers: Peers | None = None
        """Only in a cluster, where they can be found."""
        self._peers: Mapping[str, Pair] | None = None
        """By shard, as the other routers themselves say; None where none of them is heard."""
        self._used_by_ended: Counter[str] = Counter()
        """By caller: tokens that workers used which are no more."""
        self._told: Message | None = None
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
        roster = {"kind": "roster", "generation": self.members.generation, "shards": entries}
        # EndpointSlices change for reasons that are none of ours.
        if roster != self._told:
            self._told = roster
            self._write_elsewhere()
            self.supervisor.tell(roster)

    def callers_changed(self, callers: tuple[Caller, ...] | None) -> None:
        """Tell the workers who may come in; None for everybody."""
        if callers is None:
            self.supervisor.tell({"kind": "callers", "callers": None})
            return
        names = {caller.name for caller in callers}
        self._used_by_ended = Counter({name: used for name, used in self._used_by_ended.items() if name in names})
        self._slots_of_callers = slots = self._caller_slots.settle(caller.name for caller in callers)
        entries = [to_message(caller) | {"slot": slots[caller.name]} for caller in callers]
        self._write_elsewhere()
        self.supervisor.tell({"kind": "callers", "callers": entries})

    # --- from the workers ------------------------------------------------------------------------------------------
    def worker_reports(self, row: int, message: Message) -> None:
        """One worker's counts and what it has under way."""
        self.totals.report(row, message)
        if self.vocabulary:
            self.vocabulary.add(message["vocabulary"])

    def worker_ends(self, row: int) -> None:
        """One worker is gone; its numbers are still in the table.

        What its callers used moves over to the row of all others: sums of use must not fall, or a rise back to where
        they were would be charged to the callers a second time.
        """
        self.totals.end(row)
        for name, slot in self._slots_of_callers.items():
            self._used_by_ended[name] += self.gauges.get(row, slot)[0]
            self.gauges.set(row, slot, 0, 0)
            self._write_caller(name, slot)

    # --- to and from the other routers -----------------------------------------------------------------------------
    def own_loads(self) -> dict[str, Pair]:
        """By shard, all workers together: what is not elsewhere."""
        return {name: self.gauges.others(self._elsewhere_row, slot) for name, slot in self._slots_of_shards.items()}

    def own_numbers(self) -> tuple[dict[str, Pair], dict[str, Pair]]:
        """The same, and by caller."""
        row, shards = self._elsewhere_row, self.own_loads()
        callers = {name: self.gauges.others(row, slot) for name, slot in self._slots_of_callers.items()}
        return shards, {name: (used + self._used_by_ended[name], busy) for name, (used, busy) in callers.items()}

    def set_elsewhere(self, shards: Mapping[str, Pair], callers: Mapping[str, Pair]) -> None:
        """The other routers' numbers."""
        self._elsewhere = shards, callers
        self._write_elsewhere()

    def set_peers(self, shards: Mapping[str, Pair] | None) -> None:
        """What the other routers have on shards, from themselves: newer than what somebody in between knows."""
        self._peers = shards
        self._write_shards()

    def _write_elsewhere(self) -> None:
        self._write_shards()
        for name, slot in self._slots_of_callers.items():
            self._write_caller(name, slot)

    def _write_shards(self) -> None:
        elsewhere = self._elsewhere[0] if self._peers is None else self._peers
        for name, slot in self._slots_of_shards.items():
            self.gauges.set(self._elsewhere_row, slot, *elsewhere.get(name, (0, 0)))

    def _write_caller(self, name: str, slot: int) -> None:
        used, busy = self._elsewhere[1].get(name, (0, 0))
        self.gauges.set(self._elsewhere_row, slot, used + self._used_by_ended[name], busy)

    # --- to the admin port -----------------------------------------------------------------------------------------
    @property
    def not_ready(self) -> str:
        """Why clients should not be sent here; empty when they should."""
        if self.draining:
            return "draining"
        if not self.members.are_known:
            return "waiting for the list of shards"
        return self.supervisor.trouble

    def rosters(self) -> dict[str, Any]:
        """What each worker has applied, beside what it was told."""
        shards = {shard.id: {"weight": shard.weight, "draining": shard.draining} for shard in self.shards}
        reports = {worker.row: worker.report for worker in self.supervisor.serving()}
        applied = {row: report["roster_generation"] for row, report in reports.items() if report}
        return {"generation": self.members.generation, "appliedByWorkers": applied, "shards": shards}
