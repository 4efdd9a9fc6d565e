"""The life of a worker process: hear what to know, take clients, drain, end."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any

from tokenpool_router.gauges import Gauges
from tokenpool_router.journey.access_log import AccessLog
from tokenpool_router.settings import Settings
from tokenpool_router.worker.link import Link, Message, connect
from tokenpool_router.worker.worker import Worker

ENV_TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT"


async def run(settings: Settings, link_descriptor: int, gauges: Gauges, row: int) -> None:
    """Until drained, or until the control process is gone."""
    # The control process decides when to end; a terminal's Ctrl-C reaches both.
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: None)
    access_log = AccessLog() if settings.access_log else None
    if access_log:
        access_log.start()
    worker = Worker(settings, gauges, row, access_log=access_log, traces=bool(os.environ.get(ENV_TRACES)))
    life = Life(worker, settings)
    life.link = await connect(link_descriptor, life.heard)
    await asyncio.wait({life.link.gone, life.ended}, return_when=asyncio.FIRST_COMPLETED)
    life.link.close()
    await worker.close()
    if access_log:
        access_log.close()


class Life:
    """What a worker does at each message."""

    link: Link

    def __init__(self, worker: Worker, settings: Settings) -> None:
        self._worker, self._settings = worker, settings
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def heard(self, message: Message) -> None:
        """One message of the control process."""
        match message["kind"]:
            case "roster":
                self._worker.set_roster(message)
                self._learned("roster")
            case "callers":
                self._worker.set_callers(message)
                self._learned("callers")
            case "tls":
                self._worker.reload_tls()
            case "report":
                self._report(message["id"])
            case "drain":
                self._begin(self._drain(message["seconds"]))

    def _learned(self, what: str) -> None:
        """Take clients once it is known who may come and where requests go, not before."""
        before = len(self._known)
        self._known.add(what)
        if before < len(self._known) == 2:
            self._begin(self._listen())

    async def _listen(self) -> None:
        self.link.send({"kind": "listening", "port": await self._worker.listen()})

    def _report(self, number: int) -> None:
        spans = self._worker.desk.ledger.spans
        if spans:
            self.link.send({"kind": "spans", "spans": spans})
            spans.clear()
        self.link.send(self._worker.report(number))

    async def _drain(self, seconds: float) -> None:
        await self._worker.drain(seconds)
        # What happened since the last report was asked for.
        self._report(0)
        self.link.send({"kind": "drained"})
        self.ended.set_result(None)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() and not self.ended.done():
            # Such as a port that is taken: the control process sees the end, and the reason in the log.
            self.ended.set_exception(task.exception() or RuntimeError())
