"""What this worker has on each shard, told to the other workers, and what they have, told to its sharding.

A few milliseconds late is as good as at once; a second late would be worse than not to know.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from tokenpool_router.gauges import Gauges

if TYPE_CHECKING:
    from tokenpool_router.journey.desk import Desk

FASTEST_SECONDS: Final = 0.005
# With nobody beside us on this machine there are only the other routers to hear of, which takes longer anyway.
ALONE_SECONDS: Final = 0.02
# Time for one shard's numbers; with thousands of shards the rounds get rarer, so that they stay cheap.
SECONDS_PER_SHARD: Final = 0.00005


class GaugeExchange:
    """Copies numbers between the shared table and the desk."""

    def __init__(self, gauges: Gauges, row: int, desk: "Desk") -> None:
        self._gauges, self._row, self._desk = gauges, row, desk
        self._shards: dict[str, int] = {}
        self._callers: dict[str, int] = {}
        # The table has a row for each worker, and one more.
        self._pause = FASTEST_SECONDS if gauges.rows > 2 else ALONE_SECONDS

    def set_shards(self, slots: dict[str, int]) -> None:
        """Where each shard's numbers are. A slot may have been another one's."""
        self._shards = slots
        for shard_id, slot in slots.items():
            load = self._desk.sharding.load(shard_id, now=0.0)
            self._gauges.set(self._row, slot, load.outstanding_tokens, load.in_flight)

    def set_callers(self, slots: dict[str, int]) -> None:
        """Where each caller's numbers are."""
        self._callers = slots

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while True:
            self.exchange()
            await asyncio.sleep(max(self._pause, len(self._shards) * SECONDS_PER_SHARD))

    def exchange(self) -> None:
        """One round."""
        gauges, row, sharding = self._gauges, self._row, self._desk.sharding
        for shard_id, tokens, requests in sharding.changed():
            slot = self._shards.get(shard_id)
            if slot is not None:
                gauges.set(row, slot, tokens, requests)
        for shard_id, slot in self._shards.items():
            tokens, requests = gauges.others(row, slot)
            sharding.set_elsewhere(shard_id, tokens, requests)
        callers = self._desk.door.callers
        if callers:
            for name, slot in self._callers.items():
                gauges.set(row, slot, *callers.used(name))
                callers.set_elsewhere(name, *gauges.others(row, slot))
