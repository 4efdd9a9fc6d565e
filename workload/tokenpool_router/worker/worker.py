"""One worker: its desk and its clients' connections, told what to do by messages, asked what it did by reports."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from tokenpool_router.callers import Callers
from tokenpool_router.callers.caller import from_message
from tokenpool_router.gauges import Gauges
from tokenpool_router.http.connection import ClientConnection
from tokenpool_router.http.cors import Cors
from tokenpool_router.http.reader import Limits
from tokenpool_router.http.upstream import Pool
from tokenpool_router.journey.access_log import AccessLog
from tokenpool_router.journey.desk import Deadlines, Desk
from tokenpool_router.journey.door import Door
from tokenpool_router.journey.ledger import Ledger
from tokenpool_router.settings import Settings
from tokenpool_router.sharding import DynamicSharding, Policy, Shard
from tokenpool_router.waiting import FairQueue
from tokenpool_router.worker.exchange import GaugeExchange

log = logging.getLogger(__name__)

Message = dict[str, Any]

# For the last words to clients whose answers are cut at the end of the drain.
FAREWELL_SECONDS: Final = 3.0
# How exactly deadlines are kept.
SWEEP_SECONDS: Final = 0.5
BACKLOG: Final = 4096


def make_desk(settings: Settings, access_log: AccessLog | None, *, traces: bool, now: Callable[[], float]) -> Desk:
    """The parts of a worker, without sockets."""
    random = Random()  # noqa: S311 - for spreading load and jitter
    policy = Policy(settings.policy)
    door = Door(
        settings.served_name,
        Cors(settings.cors_origins),
        random,
        traces=traces,
        uses_prefixes=policy is Policy.PREFIX_AFFINITY,
    )
    ledger = Ledger(access_log, time.time)
    if traces:
        ledger.spans = []
    return Desk(
        sharding=DynamicSharding(policy=policy, random=random),
        queue=FairQueue(settings.queue_tokens),
        pool=Pool(settings.connect_seconds),
        door=door,
        ledger=ledger,
        deadlines=Deadlines(
            settings.queue_seconds, settings.first_byte_seconds, settings.stall_seconds, settings.total_seconds
        ),
        random=random,
        now=now,
    )


class Worker:
    """Serves clients on one port, beside other workers on the same one."""

    def __init__(
        self,
        settings: Settings,
        gauges: Gauges | None = None,
        row: int = 0,
        *,
        access_log: AccessLog | None = None,
        traces: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._settings = settings
        self.desk = make_desk(settings, access_log, traces=traces, now=loop.time)
        self.connections: set[ClientConnection] = set()
        self._limits = Limits(unread_seconds=settings.stall_seconds)
        self._exchange = GaugeExchange(gauges, row, self.desk) if gauges else None
        self._roster_generation = 0
        self._tls: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._tasks = [loop.create_task(self._sweep())]
        if self._exchange:
            self._tasks.append(loop.create_task(self._exchange.run()))
        self.draining = False

    # --- the control process's messages ----------------------------------------------------------------------------
    def set_roster(self, message: Message) -> None:
        """Which shards there are."""
        self._roster_generation = message["generation"]
        shards = []
        for entry in message["shards"]:
            fields = {name: value for name, value in entry.items() if name != "slot"}
            shards.append(Shard(**fields))
        self.desk.set_shards(shards)
        if self._exchange:
            self._exchange.set_shards({entry["id"]: entry["slot"] for entry in message["shards"]})

    def set_callers(self, message: Message) -> None:
        """Who may come in; None for everybody."""
        entries = message["callers"]
        if entries is None:
            self.desk.door.callers = None
            return
        callers, now = [from_message(entry) for entry in entries], self.desk.now()
        if self.desk.door.callers:
            self.desk.door.callers.replace(callers, now)
        else:
            self.desk.door.callers = Callers(callers, now)
        if self._exchange:
            self._exchange.set_callers({entry["name"]: entry["slot"] for entry in entries})

    def reload_tls(self) -> None:
        """New connections get the new certificate. One that cannot be read leaves the old one in force."""
        try:
            if self._tls:
                load_certificate(self._tls, self._settings.tls_dir)
        except (OSError, ssl.SSLError) as error:
            log.error("the certificate in %s cannot be used, the old one stays: %s", self._settings.tls_dir, error)

    def report(self, number: int) -> Message:
        """All that the control process wants to know."""
        desk, now = self.desk, self.desk.now()
        return {
            "kind": "report",
            "id": number,
            "roster_generation": self._roster_generation,
            "open_connections": len(self.connections),
            "queued_requests": desk.waiting,
            "queued_tokens": desk.waiting_tokens,
            "drain_tokens_per_second": desk.drain_rate.rate(now),
            "shards": {
                load.shard.id: {
                    "outstanding_tokens": load.outstanding_tokens,
                    "in_flight_requests": load.in_flight,
                    "ejected": load.ejected,
                }
                for load in desk.sharding.loads(now=now)
            },
            **desk.ledger.counts.report(),
            "vocabulary": desk.ledger.take_vocabulary(),
        }

    # --- life ------------------------------------------------------------------------------------------------------
    def accept(self) -> ClientConnection:
        """A connection for a client that comes."""
        connection = ClientConnection(self.desk.serve, self.connections, self._limits)
        # Whoever still comes while we drain is served once.
        connection.closing = self.draining
        return connection

    async def listen(self) -> int:
        """Take clients; the port that it is."""
        if self._settings.tls_dir:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            load_certificate(self._tls, self._settings.tls_dir)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self.accept,
            self._settings.host,
            self._settings.port,
            backlog=BACKLOG,
            reuse_port=hasattr(socket, "SO_REUSEPORT"),
            ssl=self._tls,
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def drain(self, seconds: float) -> None:
        """Serve until nothing is left to do or the time is up; then tell the rest, and go.

        The listener stays open meanwhile: the cluster sends clients here until it has noticed.
        """
        self.draining = True
        log.info("draining: %d connections, at most %.0f s", len(self.connections), seconds)
        for connection in tuple(self.connections):
            connection.finish_up()
        try:
            async with asyncio.timeout(seconds):
                await self._until_idle()
        except TimeoutError:
            log.warning("the drain's time is up: cutting %d connections", len(self.connections))
        self.stop_listening()
        for connection in tuple(self.connections):
            connection.cut()
        if self.connections:
            await asyncio.wait({connection.gone() for connection in self.connections}, timeout=FAREWELL_SECONDS)
        for connection in tuple(self.connections):
            connection.abort()

    async def _until_idle(self) -> None:
        while busy := {connection.gone() for connection in self.connections if connection.is_busy}:
            await asyncio.wait(busy)

    def stop_listening(self) -> None:
        """No more clients."""
        if self._server:
            self._server.close()

    async def close(self) -> None:
        """Stop everything at once."""
        self.stop_listening()
        for connection in tuple(self.connections):
            connection.abort()
        self.desk.pool.close()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _sweep(self) -> None:
        deadlines, loop = self.desk.deadlines, asyncio.get_running_loop()
        shortest = min(
            deadlines.queue_seconds,
            deadlines.first_byte_seconds,
            deadlines.stall_seconds,
            self._limits.arrival_seconds,
            inf,
        )
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, max(shortest / 4, 0.01)))
            now = loop.time()
            self.desk.sweep(now)
            for connection in tuple(self.connections):
                connection.sweep(now)


def load_certificate(context: ssl.SSLContext, folder: str) -> None:
    """Raises OSError or SSLError."""
    context.load_cert_chain(Path(folder, "tls.crt"), Path(folder, "tls.key"))
