"""The life of a router process: listen, follow the pool's shards, drain, end."""

import asyncio
import logging
import signal
from contextlib import suppress

from aiohttp import web

from tokenpool_router import admin
from tokenpool_router.admission import WaitingRoom
from tokenpool_router.balancer import Balancer
from tokenpool_router.client import ClientConnection, Limits
from tokenpool_router.discovery import watch_shards
from tokenpool_router.forward import Deadlines, Forwarder
from tokenpool_router.membership import static_members
from tokenpool_router.metrics import Metrics
from tokenpool_router.settings import Settings
from tokenpool_router.state import State
from tokenpool_router.upstream import Pool

log = logging.getLogger(__name__)

# For the last words to clients whose answers are cut at the end of the drain.
FAREWELL_SECONDS = 3.0


def make_state(settings: Settings) -> State:
    """The parts, not yet running."""
    state = State(
        balancer=Balancer(),
        room=WaitingRoom(settings.queue_tokens, settings.queue_seconds),
        pool=Pool(settings.connect_seconds),
        metrics=Metrics(),
    )
    state.metrics.gauge("shards", "Shards that may be picked", lambda: len(state.balancer))
    state.metrics.gauge("queued_requests", "Requests that wait for a shard", lambda: len(state.room))
    state.metrics.gauge("queued_tokens", "Estimated tokens of waiting requests", lambda: state.room.tokens)
    state.metrics.gauge("open_connections", "Client connections", lambda: len(state.connections))
    return state


async def listen(state: State, settings: Settings) -> asyncio.Server:
    """Start the data plane."""
    deadlines = Deadlines(settings.first_byte_seconds, settings.stall_seconds)
    forwarder = Forwarder(state.balancer, state.room, state.pool, state.metrics, deadlines)
    limits = Limits(unread_seconds=settings.stall_seconds)

    def accept() -> ClientConnection:
        connection = ClientConnection(forwarder.handle, state.connections, limits)
        # Whoever still comes while we drain is served once.
        connection.closing = state.draining
        return connection

    loop = asyncio.get_running_loop()
    return await loop.create_server(accept, settings.host, settings.port, backlog=4096)


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT and the drain after it. Raises what ends the watch, such as NotConfigured."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    state = make_state(settings)
    admin_runner = web.AppRunner(admin.application(state), access_log=None)
    await admin_runner.setup()
    await web.TCPSite(admin_runner, settings.host, settings.admin_port).start()
    server = await listen(state, settings)
    log.info("serving on port %d, admin on port %d", server.sockets[0].getsockname()[1], admin_runner.addresses[0][1])
    following = asyncio.create_task(follow(state, settings))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        following.result()
    await drain(state, server, settings.drain_seconds)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    state.pool.close()
    await admin_runner.cleanup()


async def follow(state: State, settings: Settings) -> None:
    """Keep the members current until cancelled."""
    if settings.shards:
        state.set_members(static_members(settings.shards))
        await asyncio.Event().wait()
    await watch_shards(settings.pool, settings.namespace, state.set_members)


async def drain(state: State, server: asyncio.Server, seconds: float) -> None:
    """Not ready any more, but serve until nothing is left to do or the time is up; then tell the rest, and go.

    The listener stays open meanwhile: the cluster sends clients here until it has noticed.
    """
    state.draining = True
    log.info("draining: %d connections, at most %.0f s", len(state.connections), seconds)
    for connection in tuple(state.connections):
        connection.finish_up()
    try:
        async with asyncio.timeout(seconds):
            await _until_idle(state)
    except TimeoutError:
        log.warning("the drain's time is up: cutting %d connections", len(state.connections))
    server.close()
    for connection in tuple(state.connections):
        connection.cut()
    if state.connections:
        await asyncio.wait({connection.gone for connection in state.connections}, timeout=FAREWELL_SECONDS)
    for connection in tuple(state.connections):
        connection.abort()


async def _until_idle(state: State) -> None:
    while busy := {connection.gone for connection in state.connections if connection.is_busy}:
        await asyncio.wait(busy)
