"""Health, readiness, load and metrics of a router, on a port of their own."""

import asyncio

from aiohttp import web
from prometheus_client import generate_latest

from tokenpool_api import names
from tokenpool_api.wire import RouterLoad, RouterShardLoad
from tokenpool_router.state import State


def application(state: State) -> web.Application:
    """The admin application over one router."""

    async def healthz(_request: web.Request) -> web.Response:
        """That this is answered shows that the loop runs."""
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        """Knows the pool's shards, even if there are none: then it can hold requests or say so."""
        reason = "draining" if state.draining else "" if state.knows_members else "waiting for the list of shards"
        return web.Response(text=(reason or "ok") + "\n", status=503 if reason else 200)

    async def load(_request: web.Request) -> web.Response:
        body = router_load(state, asyncio.get_running_loop().time())
        return web.Response(text=body.model_dump_json(by_alias=True), content_type="application/json")

    async def metrics(_request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=generate_latest(state.metrics.registry), headers=headers)

    app = web.Application()
    app.router.add_get(names.PATH_HEALTH, healthz)
    app.router.add_get(names.PATH_READY, readyz)
    app.router.add_get(names.PATH_LOAD, load)
    app.router.add_get(names.PATH_METRICS, metrics)
    return app


def router_load(state: State, now: float) -> RouterLoad:
    """The body of `/load`."""
    shards = [
        RouterShardLoad(
            name=seat.member.name,
            address=seat.member.address,
            outstanding_tokens=seat.outstanding_tokens,
            in_flight_requests=seat.in_flight,
            ejected=seat.ejected,
        )
        for seat in state.balancer.loads(now=now)
    ]
    return RouterLoad(queued_requests=len(state.room), queued_tokens=state.room.tokens, shards=tuple(shards))
