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
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        lambda: ClientConnection(forwarder.handle, state.connections, Limits()),
        settings.host,
        settings.port,
        backlog=4096,
    )


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
    """Accept nobody, let running answers end, then go."""
    state.draining = True
    log.info("draining: %d connections, at most %.0f s", len(state.connections), seconds)
    server.close()
    for connection in tuple(state.connections):
        connection.finish_up()
    open_connections = {connection.gone for connection in state.connections}
    if open_connections:
        await asyncio.wait(open_connections, timeout=seconds)
    for connection in tuple(state.connections):
        connection.abort()
