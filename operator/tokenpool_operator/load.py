"""How busy a pool's shards are: asks their admin port, and tells a pool when its numbers changed.

Knows addresses only, neither pods nor status. Numbers reach a pool in whole percents and at most every ten seconds, so
that an idle pool causes no writes and a busy one few.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from pydantic import ValidationError

from tokenpool_api import names
from tokenpool_api.wire import ShardLoad
from tokenpool_operator.cluster import PoolKey
from tokenpool_operator.utilization import NOTHING_KNOWN, PoolLoad, summarize

REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=2)
PARALLEL_REQUESTS: Final = 32
PUBLISH_SECONDS: Final = 10.0


@dataclass
class _Tracked:
    addresses: tuple[str, ...] = ()
    published: PoolLoad = NOTHING_KNOWN
    published_at: float = field(default=float("-inf"))


class LoadBook:
    """One poll loop for all pools. `on_change` is called with the key of a pool whose published numbers changed."""

    def __init__(
        self, http: aiohttp.ClientSession, on_change: Callable[[PoolKey], None], *, clock: Callable[[], float]
    ) -> None:
        self._http = http
        self._on_change = on_change
        self._clock = clock
        self._pools: dict[PoolKey, _Tracked] = {}
        self._slots = asyncio.Semaphore(PARALLEL_REQUESTS)

    def track(self, key: PoolKey, addresses: tuple[str, ...]) -> PoolLoad:
        """Say which shards are ready now; get what was last published."""
        tracked = self._pools.setdefault(key, _Tracked())
        tracked.addresses = addresses
        if not addresses:
            tracked.published = NOTHING_KNOWN
        return tracked.published

    def forget(self, key: PoolKey) -> None:
        """The pool is gone."""
        self._pools.pop(key, None)

    async def poll_forever(self, seconds: float) -> None:
        """Poll all pools, again and again."""
        while True:
            await asyncio.sleep(seconds)
            await self.poll_all()

    async def poll_all(self) -> None:
        """One round over all pools that have ready shards."""
        busy = [(key, tracked) for key, tracked in self._pools.items() if tracked.addresses]
        await asyncio.gather(*(self._poll_pool(key, tracked) for key, tracked in busy))

    async def _poll_pool(self, key: PoolKey, tracked: _Tracked) -> None:
        answers = await asyncio.gather(*map(self._ask, tracked.addresses))
        load = summarize([answer for answer in answers if answer])
        # While the answers were on their way the pool may have lost its shards or its life.
        is_current = self._pools.get(key) is tracked and bool(tracked.addresses)
        if not is_current or load == tracked.published or self._clock() - tracked.published_at < PUBLISH_SECONDS:
            return
        tracked.published, tracked.published_at = load, self._clock()
        self._on_change(key)

    async def _ask(self, address: str) -> ShardLoad | None:
        """One shard's answer. A shard that does not answer is left out of the sum, whatever the cause."""
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{names.SHARD_ADMIN_PORT}{names.PATH_LOAD}"
        try:
            async with self._slots, self._http.get(url, timeout=REQUEST_TIMEOUT) as response:
                response.raise_for_status()
                return ShardLoad.model_validate_json(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError):
            return None
