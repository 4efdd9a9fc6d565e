"""The life of a serving process: answer probes, load, serve, drain, end. The engine has a thread of its own."""

import asyncio
import logging
import signal
from typing import Any, NoReturn

from aiohttp import web

from tokenpool_engine import admin
from tokenpool_engine.api.server import Api
from tokenpool_engine.failure import Reason, StartError
from tokenpool_engine.settings import Serve
from tokenpool_engine.shard import Parts, Shard

log = logging.getLogger(__name__)

# Time for handlers to write their last bytes once their streams were cut.
LAST_WORDS_SECONDS = 2.0


async def serve(settings: Serve) -> None:
    """Run until SIGTERM or SIGINT and the drain after it. Raises StartError when the model cannot be served."""
    shard = Shard(settings.served_name)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    admin_runner = await listen(admin.application(shard), settings.host, settings.admin_port)
    try:
        loading = asyncio.create_task(asyncio.to_thread(load, settings, shard))
        parts = await first_of(loading, stop)
        if parts:
            await serve_model(settings, shard, parts, stop)
    finally:
        await admin_runner.cleanup()


def load(settings: Serve, shard: Shard) -> Parts:
    """Import torch and put the shard together; blocks. Probes are answered meanwhile."""
    shard.enter("loading torch")
    from tokenpool_engine.compute.sparing import import_sparingly

    import_sparingly()
    from tokenpool_engine.assembly import build

    return build(settings, shard)


async def first_of(loading: "asyncio.Task[Parts]", stop: asyncio.Event) -> Parts | None:
    """The loaded parts, or None when the process is told to end before."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return loading.result() if loading.done() else None


async def serve_model(settings: Serve, shard: Shard, parts: Parts, stop: asyncio.Event) -> None:
    """From loaded to drained. Raises StartError when a rank or the engine is lost on the way."""
    loop, api = asyncio.get_running_loop(), Api(shard)
    lost: asyncio.Future[StartError] = loop.create_future()
    parts.engine.watch(lambda reason: _from_thread(loop, lost, StartError(Reason.ENGINE_FAILED, reason)))
    if parts.ranks:
        parts.ranks.watch(lambda loss: _from_thread(loop, lost, loss))
    living = asyncio.create_task(live(settings, shard, parts, api, stop))
    either: set[asyncio.Future[Any]] = {living, lost}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not living.done():
        living.cancel()
        await fall(shard, parts, api, lost.result())
    await living
    if parts.ranks:
        parts.ranks.close()


def _from_thread(loop: asyncio.AbstractEventLoop, lost: "asyncio.Future[StartError]", loss: StartError) -> None:
    """The first reason counts."""
    loop.call_soon_threadsafe(_set_first, lost, loss)


def _set_first(lost: "asyncio.Future[StartError]", loss: StartError) -> None:
    if not lost.done():
        lost.set_result(loss)


async def fall(shard: Shard, parts: Parts, api: Api, loss: StartError) -> NoReturn:
    """Without its engine or a rank the shard ends: every stream gets an error. A step may never return."""
    shard.draining = True
    log.error("cutting %d requests: %s", len(api.open_streams), loss)
    api.cut(parts, "the shard has lost a part of itself")
    await api.wait_idle(LAST_WORDS_SECONDS)
    raise loss


async def live(settings: Serve, shard: Shard, parts: Parts, api: Api, stop: asyncio.Event) -> None:
    """Serve until told to stop, then drain."""
    parts.engine.start(asyncio.get_running_loop())
    runner = await listen(api.application(), settings.host, settings.port)
    shard.enter("ready")
    parts.metrics.startup_seconds.update(shard.stage_seconds)
    shard.parts = parts
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in shard.stage_seconds.items())
    log.info("ready: %s, %d tokens of KV cache; %s", settings.served_name, parts.metrics.kv_tokens_capacity, stages)
    await stop.wait()
    await drain(settings.drain_seconds, shard, parts, api)
    await runner.cleanup()
    parts.engine.stop()


async def drain(seconds: float, shard: Shard, parts: Parts, api: Api) -> None:
    """No new requests; running ones get their time, then an explicit end."""
    shard.draining = True
    log.info("draining: %d requests, at most %.0f s", len(api.open_streams), seconds)
    if await api.wait_idle(seconds):
        return
    log.warning("cutting %d requests after %.0f s", len(api.open_streams), seconds)
    api.cut(parts, "the shard's drain time is over")
    await api.wait_idle(LAST_WORDS_SECONDS)


async def listen(app: web.Application, host: str, port: int) -> web.AppRunner:
    """Start an application; a client that goes away cancels its handler."""
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=LAST_WORDS_SECONDS)
    await runner.setup()
    await web.TCPSite(runner, host, port, reuse_address=True).start()
    return runner
