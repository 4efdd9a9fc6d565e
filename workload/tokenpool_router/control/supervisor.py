"""Keeps the workers alive: starts them, tells each what all of them know, and starts those anew that end or hang."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokenpool_router.control.line import Message
from tokenpool_router.control.running import WORKER, Running, start_worker
from tokenpool_router.gauges import Gauges

log = logging.getLogger(__name__)

# A collector that is away must not make us grow.
MOST_SPANS: Final = 4096


@dataclass(frozen=True)
class Patience:
    """How long the supervisor waits for what."""

    first_pause_seconds: float = 0.2
    longest_pause_seconds: float = 10.0
    """A worker that ends at once, over and over, must not burn a core in being started."""
    sound_seconds: float = 30.0
    """Who lived that long did not end because of how it starts."""
    hang_seconds: float = 30.0
    ask_seconds: float = 1.0
    farewell_seconds: float = 10.0
    """Beyond the drain itself: for the last words to clients, and for the process to end."""


PATIENCE: Final = Patience()


class Supervisor:
    """`on_report` gets every report of a worker; `on_end` is told of each end, with the dead one's numbers still there.

    A worker hears of nothing but this process, so it needs no signals: those of a terminal's Ctrl-C it ignores.
    """

    def __init__(
        self,
        count: int,
        arguments: Sequence[str],
        gauges: Gauges,
        on_report: Callable[[int, Message], None],
        on_end: Callable[[int], None],
        *,
        command: Sequence[str] = WORKER,
        patience: Patience = PATIENCE,
    ) -> None:
        self._command, self._arguments, self._gauges, self._patience = command, tuple(arguments), gauges, patience
        self._on_report, self._on_end = on_report, on_end
        self._known: dict[str, Message] = {}
        self._have_served: set[int] = set()
        self._draining = asyncio.Event()
        self._drain_until = 0.0
        self._spans: deque[dict[str, Any]] = deque(maxlen=MOST_SPANS)
        self.workers: list[Running | None] = [None] * count
        self.restarts = 0

    def tell(self, message: Message) -> None:
        """All workers, those to come included."""
        if message["kind"] != "tls":
            # A new worker reads its certificate when it starts.
            self._known[message["kind"]] = message
        for worker in self._running():
            worker.line.send(message)

    def _running(self) -> list[Running]:
        return [worker for worker in self.workers if worker]

    # --- lives -----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Until all workers have drained, or until cancelled."""
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(self._ask())
            rows = [group.create_task(self._keep(row)) for row in range(len(self.workers))]
            await asyncio.wait(rows)
            asking.cancel()

    async def _keep(self, row: int) -> None:
        """One worker after the other."""
        loop, patience = asyncio.get_running_loop(), self._patience
        pause = patience.first_pause_seconds
        while not self._draining.is_set():
            began = loop.time()
            what = await self._live(row)
            if self._draining.is_set():
                return
            if loop.time() - began > patience.sound_seconds:
                pause = patience.first_pause_seconds
            self.restarts += 1
            log.error("worker %d %s; starting another in %.1f s", row, what, pause)
            await self._pause(pause)
            pause = min(pause * 2, patience.longest_pause_seconds)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        except TimeoutError:
            return

    async def _live(self, row: int) -> str:
        """One life. Returns how it ended."""
        try:
            worker = await start_worker(
                self._command,
                self._arguments,
                row,
                self._gauges,
                on_report=self._reported,
                on_spans=self._spans.extend,
            )
        except OSError as error:
            return f"could not be started ({error})"
        self.workers[row] = worker
        self._brief(worker)
        try:
            return f"ended with code {await worker.end()}"
        except asyncio.CancelledError:
            await worker.make_end(self._patience.farewell_seconds)
            raise
        finally:
            self.workers[row] = None
            self._on_end(row)
            self._gauges.clear(row)

    def _brief(self, worker: Running) -> None:
        """Tell a new worker what the others know; before it knows, it takes no clients."""
        worker.line.listening.add_done_callback(
            lambda listening: None if listening.cancelled() else self._have_served.add(worker.row)
        )
        for message in self._known.values():
            worker.line.send(message)
        if self._draining.is_set():
            # It was on its way when the others were told.
            self._dismiss(worker)

    # --- reports ---------------------------------------------------------------------------------------------------
    def _reported(self, worker: Running, message: Message) -> None:
        self._on_report(worker.row, message)

    async def _ask(self) -> None:
        while True:
            await self.gather()
            self._end_hung()
            await asyncio.sleep(self._patience.ask_seconds)

    async def gather(self) -> None:
        """Have all workers report; returns when they have, or when some do not in time."""
        await asyncio.gather(*[worker.line.ask() for worker in self._running()])

    def serving(self) -> list[Running]:
        """Workers that take clients. One that does not answer now is among them, with the report that it gave last."""
        return [worker for worker in self._running() if worker.is_serving]

    def _end_hung(self) -> None:
        now = asyncio.get_running_loop().time()
        for worker in self._running():
            silent = now - worker.line.heard_at
            if silent > self._patience.hang_seconds and worker.process.returncode is None:
                log.error("worker %d said nothing for %.0f s; ending it", worker.row, silent)
                worker.kill()

    @property
    def trouble(self) -> str:
        """Why clients are not served as they should be; empty when they are.

        At first all workers have to serve. Later one that ends is replaced, and the others serve meanwhile.
        """
        for row in range(len(self.workers)):
            if row not in self._have_served:
                return f"worker {row} does not serve yet"
        return "" if self.serving() else "no worker serves"

    def spans(self) -> list[dict[str, Any]]:
        """What workers want to be told to a tracing collector, since the last call."""
        found = list(self._spans)
        self._spans.clear()
        return found

    # --- the end ---------------------------------------------------------------------------------------------------
    def drain(self, seconds: float) -> None:
        """Let every worker finish what it has, and end; `run` returns when they have."""
        self._draining.set()
        self._drain_until = asyncio.get_running_loop().time() + seconds
        for worker in self._running():
            self._dismiss(worker)

    def _dismiss(self, worker: Running) -> None:
        loop = asyncio.get_running_loop()
        worker.line.send({"kind": "drain", "seconds": max(self._drain_until - loop.time(), 0.0)})
        loop.call_at(self._drain_until + self._patience.farewell_seconds, worker.kill)

    def kill(self) -> None:
        """End all workers now, whatever they have."""
        self._draining.set()
        for worker in self._running():
            worker.kill()
