"""Keeps the workers alive: starts them, tells each what all of them know, and starts those anew that end or hang."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokenpool_router.control.line import Line, Message, open_line
from tokenpool_router.gauges import Gauges

log = logging.getLogger(__name__)

# A worker that ends at once, over and over, must not burn a core in being started.
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 10.0
# Who lived that long did not end because of how it starts.
SOUND_SECONDS: Final = 30.0
HANG_SECONDS: Final = 30.0
ASK_SECONDS: Final = 1.0
# Beyond the drain itself: for the last words to clients, and for the process to end.
FAREWELL_SECONDS: Final = 10.0


@dataclass(eq=False)
class Running:
    """One worker process."""

    row: int
    process: asyncio.subprocess.Process
    line: Line
    report: Message | None = None
    """The last one."""


class Supervisor:
    """`on_report` gets every report of a running worker, `on_end` the last one of a worker that ended."""

    def __init__(
        self,
        count: int,
        arguments: Sequence[str],
        gauges: Gauges,
        on_report: Callable[[int, Message], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._arguments, self._gauges = tuple(arguments), gauges
        self._on_report, self._on_end = on_report, on_end
        self._known: dict[str, Message] = {}
        self.workers: list[Running | None] = [None] * count
        self.restarts = 0
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Where clients are served, known when the first worker serves them."""
        self._draining = False

    def tell(self, message: Message) -> None:
        """All workers, those to come included."""
        if message["kind"] != "tls":
            # A new worker reads its certificate when it starts.
            self._known[message["kind"]] = message
        for worker in self.workers:
            if worker:
                worker.line.send(message)

    async def run(self) -> None:
        """Until all workers have drained, or until cancelled."""
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(self._ask())
            rows = [group.create_task(self._keep(row)) for row in range(len(self.workers))]
            await asyncio.wait(rows)
            asking.cancel()

    async def _keep(self, row: int) -> None:
        """One worker after the other."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        while not self._draining:
            began = loop.time()
            worker = await self._start(row)
            try:
                code = await worker.process.wait()
            except asyncio.CancelledError:
                worker.line.close()
                await self._end(worker.process)
                raise
            self.workers[row] = None
            worker.line.close()
            self._gauges.clear(row)
            self._on_end(row)
            if self._is_over():
                return
            self.restarts += 1
            log.error("worker %d ended with code %s; starting another in %.1f s", row, code, pause)
            pause = FIRST_PAUSE_SECONDS if loop.time() - began > SOUND_SECONDS else pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _is_over(self) -> bool:
        return self._draining

    async def _start(self, row: int) -> Running:
        line, theirs = await open_line()
        with theirs:
            flags = ["--link-fd", str(theirs.fileno()), "--gauges-fd", str(self._gauges.descriptor), "--row", str(row)]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tokenpool_router.worker",
                *flags,
                *self._arguments,
                pass_fds=(theirs.fileno(), self._gauges.descriptor),
            )
        worker = self.workers[row] = Running(row, process, line)
        for message in self._known.values():
            line.send(message)
        line.listening.add_done_callback(self._listens)
        return worker

    def _listens(self, listening: "asyncio.Future[int]") -> None:
        if not listening.cancelled() and not self.port.done():
            self.port.set_result(listening.result())

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """A worker whose line is closed ends by itself; one that does not is made to."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    # --- reports ---------------------------------------------------------------------------------------------------
    async def _ask(self) -> None:
        while True:
            await self.gather()
            self._end_hung()
            await asyncio.sleep(ASK_SECONDS)

    async def gather(self) -> list[Message]:
        """Fresh reports of all workers that answer in time."""
        running = [worker for worker in self.workers if worker and worker.line.listening.done()]
        reports = await asyncio.gather(*[worker.line.report() for worker in running])
        for worker, report in zip(running, reports, strict=True):
            if report:
                worker.report = report
                self._on_report(worker.row, report)
        return [report for report in reports if report]

    def _end_hung(self) -> None:
        now = asyncio.get_running_loop().time()
        for worker in self.workers:
            if worker and now - worker.line.heard_at > HANG_SECONDS and worker.process.returncode is None:
                log.error("worker %d said nothing for %.0f s; ending it", worker.row, HANG_SECONDS)
                worker.process.kill()

    @property
    def trouble(self) -> str:
        """Why not all workers serve clients; empty when they do."""
        for row, worker in enumerate(self.workers):
            if worker is None or not worker.line.listening.done() or worker.line.listening.cancelled():
                return f"worker {row} does not serve yet"
        return ""

    def spans(self) -> list[dict[str, Any]]:
        """What workers want to be told to a tracing collector, since the last call."""
        found: list[dict[str, Any]] = []
        for worker in self.workers:
            if worker:
                found += worker.line.spans
                worker.line.spans = []
        return found

    # --- the end ---------------------------------------------------------------------------------------------------
    def drain(self, seconds: float) -> None:
        """Let every worker finish what it has, and end; `run` returns when they have."""
        self._draining = True
        loop = asyncio.get_running_loop()
        for worker in self.workers:
            if worker:
                worker.line.send({"kind": "drain", "seconds": seconds})
                loop.call_later(seconds + FAREWELL_SECONDS, self._make_end, worker.process)

    def _make_end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.kill()
