"""Health, readiness, load and metrics, on a port of their own."""

from aiohttp import web
from prometheus_client import generate_latest

from tokenpool_api import names
from tokenpool_api.wire import ShardLoad
from tokenpool_engine.shard import Shard

EMPTY_LOAD = ShardLoad(
    ready=False,
    draining=False,
    running_requests=0,
    waiting_requests=0,
    outstanding_tokens=0,
    kv_tokens_reserved=0,
    kv_tokens_capacity=0,
    prompt_tokens_total=0,
    generated_tokens_total=0,
    steps_total=0,
    tokens_per_second=0,
)


def application(shard: Shard) -> web.Application:
    """The admin application over one shard."""

    async def healthz(_request: web.Request) -> web.Response:
        """Alive: a step happened when one was due. A busy engine is healthy; so is one that still loads."""
        trouble = shard.parts.engine.trouble() if shard.parts else ""
        return web.Response(text=(trouble or "ok") + "\n", status=503 if trouble else 200)

    async def readyz(_request: web.Request) -> web.Response:
        """Answers correctly now; else the stage it is in."""
        reason = shard.not_ready
        return web.Response(text=(reason or "ok") + "\n", status=503 if reason else 200)

    async def load(_request: web.Request) -> web.Response:
        ready = not shard.not_ready
        found = shard.parts.metrics.load(ready=ready, draining=shard.draining) if shard.parts else EMPTY_LOAD
        return web.Response(text=found.model_dump_json(by_alias=True), content_type="application/json")

    async def metrics(_request: web.Request) -> web.Response:
        body = generate_latest(shard.parts.metrics.registry) if shard.parts else b""
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.router.add_get(names.PATH_HEALTH, healthz)
    app.router.add_get(names.PATH_READY, readyz)
    app.router.add_get(names.PATH_LOAD, load)
    app.router.add_get(names.PATH_METRICS, metrics)
    return app
