"""The life of a router: start the workers, tell them what changes, drain, end."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from tokenpool_router.control import admin
from tokenpool_router.control.files import follow_certificate, follow_keys
from tokenpool_router.control.membership import Members
from tokenpool_router.control.peers import Peers
from tokenpool_router.control.state import Control
from tokenpool_router.control.supervisor import Supervisor
from tokenpool_router.control.vocabulary import VocabularyCounts
from tokenpool_router.settings import Settings

if TYPE_CHECKING:
    from tokenpool_router.shared import SharedState

log = logging.getLogger(__name__)

SNAPSHOT_SECONDS = 1.0
ENV_TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT"


class CannotStart(Exception):
    """What the one who started us has to change: a port that is taken, or no way to the cluster."""


async def run(settings: Settings, arguments: Sequence[str]) -> None:
    """Until SIGTERM or SIGINT and the drain after it. Raises CannotStart."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    control = Control(settings.workers, Members(settings.shard_requests, settings.shard_tokens))
    if not settings.shards:
        control.peers = Peers(own_name(), settings.admin_port, control.own_loads, control.set_peers)
    port = reserve_port(settings)
    supervisor = control.supervisor = Supervisor(
        settings.workers,
        [*arguments, "--port", str(port.getsockname()[1])],
        control.gauges,
        control.worker_reports,
        control.worker_ends,
    )

    def told_to_stop() -> None:
        if stop.is_set():
            log.warning("told to stop again: ending at once")
            supervisor.kill()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    shared = make_shared(settings, control)
    runner = web.AppRunner(admin.application(control, lambda: shared.state if shared else None), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.admin_port).start()
    except OSError as error:
        raise cannot_listen(settings.host, settings.admin_port, error) from error
    log.info("port %d, admin on port %d", port.getsockname()[1], runner.addresses[0][1])
    try:
        with port:
            await _live(settings, control, supervisor, shared, stop)
    finally:
        await runner.cleanup()


def reserve_port(settings: Settings) -> socket.socket:
    """Hold the port for the workers, which all listen on it; held and not listened on, it gets no connections.

    So a port that is taken is an error here and now, and port 0 is one port for all of them.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Without SO_REUSEPORT first, or two routers on one machine would share a port, and its clients, unnoticed.
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((settings.host, settings.port))
    except OSError as error:
        held.close()
        raise cannot_listen(settings.host, settings.port, error) from error
    return held


def cannot_listen(host: str, port: int, error: OSError) -> CannotStart:
    """The error as a person is told."""
    return CannotStart(f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}")


def make_shared(settings: Settings, control: Control) -> "SharedState | None":
    """The other routers, where there is a Redis to hear of them."""
    if not settings.redis_url_file:
        return None
    from tokenpool_router.shared import OwnNumbers, SharedState

    vocabulary = control.vocabulary = VocabularyCounts()

    def own() -> OwnNumbers:
        shards, callers = control.own_numbers()
        return OwnNumbers(shards, callers)

    return SharedState(
        Path(settings.redis_url_file),
        f"{settings.namespace}/{settings.pool}",
        own_name(),
        on_elsewhere=control.set_elsewhere,
        own=own,
        take_vocabulary=vocabulary.take,
    )


async def _live(
    settings: Settings, control: Control, supervisor: Supervisor, shared: "SharedState | None", stop: asyncio.Event
) -> None:
    """All tasks of the process. The first that fails ends it."""
    async with asyncio.TaskGroup() as group:
        workers = group.create_task(supervisor.run())
        others = [
            group.create_task(_follow_shards(settings, control)),
            group.create_task(_follow_callers(settings, control)),
            group.create_task(_remember(control)),
        ]
        if control.peers:
            others.append(group.create_task(control.peers.run()))
        if settings.tls_dir:
            others.append(group.create_task(follow_certificate(settings.tls_dir, supervisor)))
        if shared:
            others.append(group.create_task(shared.run()))
        if os.environ.get(ENV_TRACES):
            from tokenpool_router.control.tracing import follow_spans

            others.append(group.create_task(follow_spans(supervisor.spans)))
        await stop.wait()
        log.info("draining, at most %.0f s", settings.drain_seconds)
        control.draining = True
        supervisor.drain(settings.drain_seconds)
        await workers
        for task in others:
            task.cancel()


def own_name() -> str:
    """The pod's, or one that nobody else has."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


async def _follow_shards(settings: Settings, control: Control) -> None:
    if control.peers is None:
        control.members.set_static(settings.shards)
        control.members_changed()
        return
    # The library is heavy, and only needed here.
    from tokenpool_kube import NotConfigured
    from tokenpool_router.control.discovery import watch_pool

    on_routers = control.peers.set_hosts
    try:
        await watch_pool(
            settings.pool, settings.namespace, control.members, control.members_changed, on_routers=on_routers
        )
    except NotConfigured as error:
        raise CannotStart(str(error)) from error


async def _follow_callers(settings: Settings, control: Control) -> None:
    if settings.keys_dir:
        await follow_keys(settings.keys_dir, control.callers_changed)
    else:
        control.callers_changed(None)


async def _remember(control: Control) -> None:
    while True:
        control.recent.add(control.totals.sums(), asyncio.get_running_loop().time())
        await asyncio.sleep(SNAPSHOT_SECONDS)
