"""Health, readiness, load, roster and metrics of a router, on a port of their own."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from tokenpool_api import names
from tokenpool_router.control.exposition import exposition
from tokenpool_router.control.peers import PATH_NUMBERS, told
from tokenpool_router.control.state import Control
from tokenpool_router.shared import State

PATH_ROSTER = "/roster"


def application(control: Control, redis: Callable[[], State | None]) -> web.Application:
    """The admin application over one router."""

    async def healthz(_request: web.Request) -> web.Response:
        """That this is answered shows that the loop runs; workers that hang are replaced by it."""
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        """Knows the pool's shards, even if there are none: then it can hold requests or say so."""
        reason = control.not_ready
        return web.Response(text=(reason or "ok") + "\n", status=503 if reason else 200)

    async def load(_request: web.Request) -> web.Response:
        # With pydantic, which a router without an operator never needs.
        from tokenpool_router.control.load import router_load

        body = await router_load(control, asyncio.get_running_loop().time())
        return web.Response(text=body.model_dump_json(by_alias=True), content_type="application/json")

    async def roster(_request: web.Request) -> web.Response:
        return web.json_response(control.rosters())

    async def numbers(_request: web.Request) -> web.Response:
        return web.Response(body=told(control.own_loads()), content_type="application/json")

    async def metrics(_request: web.Request) -> web.Response:
        await control.supervisor.gather()
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=exposition(control, redis()), headers=headers)

    app = web.Application()
    app.router.add_get(names.PATH_HEALTH, healthz)
    app.router.add_get(names.PATH_READY, readyz)
    app.router.add_get(names.PATH_LOAD, load)
    app.router.add_get(PATH_ROSTER, roster)
    app.router.add_get(PATH_NUMBERS, numbers)
    app.router.add_get(names.PATH_METRICS, metrics)
    return app
