"""One task per pool: somebody rings, a pass runs. Rings during a pass make one more pass, not many.

Errors wait longer each time; without rings a pass runs once in a while; the task of a vanished pool ends. It does not
know what a pass does.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from tokenpool_kube import ClusterError
from tokenpool_kube.backoff import Backoff
from tokenpool_operator.cluster import PoolKey
from tokenpool_operator.metrics import Metrics
from tokenpool_operator.reconcile import Outcome

log = logging.getLogger(__name__)

# Pods of a pool change in bursts; waiting this long after the first ring makes one pass of a burst.
GATHER_SECONDS = 0.1
# A pass is bound by this process, not by the server; more at once would only hold more connections and memory.
PARALLEL_PASSES = 4
CHANCE = random.SystemRandom().random


class Bells:
    """The bells of all pools. Until `open` is called rings are only remembered."""

    def __init__(
        self,
        run_pass: Callable[[PoolKey], Awaitable[Outcome]],
        metrics: Metrics,
        *,
        resync_seconds: float,
        chance: Callable[[], float] = CHANCE,
    ) -> None:
        self._run_pass = run_pass
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._chance = chance
        self._rings: dict[PoolKey, asyncio.Event] = {}
        self._tasks: dict[PoolKey, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(PARALLEL_PASSES)
        self._is_open = False

    def ring(self, key: PoolKey) -> None:
        """Have a pass run soon. Never blocks."""
        self._rings.setdefault(key, asyncio.Event()).set()
        if self._is_open and key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._serve(key), name=f"pool {key[0]}/{key[1]}")
            self._metrics.pools.set(len(self._tasks))

    def open(self) -> None:
        """This replica leads: serve what was rung and what will be."""
        self._is_open = True
        for key in list(self._rings):
            self.ring(key)

    async def close(self) -> None:
        """Cancel all passes. What a pass leaves undone, the next one over that pool finds."""
        self._is_open = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, key: PoolKey) -> None:
        backoff = Backoff(self._chance)
        rung = self._rings[key]
        try:
            while True:
                await asyncio.sleep(GATHER_SECONDS)
                rung.clear()
                result = await self._try(key)
                if isinstance(result, Exception):
                    # A ring does not shorten this wait, or a burst of events would hammer a server in trouble.
                    await asyncio.sleep(backoff.next_seconds(getattr(result, "retry_after", None)))
                    continue
                backoff.reset()
                # Nothing is awaited between this look and the removal below, so no ring gets lost.
                if result.gone and not rung.is_set():
                    return
                await self._wait(rung, result.again_seconds)
        finally:
            self._forget(key)

    async def _try(self, key: PoolKey) -> Outcome | Exception:
        """One pass, counted. Errors are values here: temporary ones in one line, bugs with their traceback."""
        async with self._slots:
            with self._metrics.pass_seconds.time():
                try:
                    outcome = await self._run_pass(key)
                except ClusterError as error:
                    log.warning("%s/%s: the pass did not finish: %s", *key, error)
                    return self._failed(error)
                except Exception as error:
                    log.exception("%s/%s: a bug ended the pass", *key)
                    return self._failed(error)
        self._metrics.passes.labels("gone" if outcome.gone else "done").inc()
        return outcome

    def _failed(self, error: Exception) -> Exception:
        self._metrics.passes.labels("failed").inc()
        self._metrics.errors.labels(type(error).__name__).inc()
        return error

    async def _wait(self, rung: asyncio.Event, again_seconds: float | None) -> None:
        """Until somebody rings, or long enough that events might have been missed."""
        resync_seconds = self._resync_seconds * (0.8 + 0.4 * self._chance())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rung.wait(), min(again_seconds or resync_seconds, resync_seconds))

    def _forget(self, key: PoolKey) -> None:
        self._tasks.pop(key, None)
        self._rings.pop(key, None)
        self._metrics.pools.set(len(self._tasks))
