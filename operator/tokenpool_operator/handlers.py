"""The part that knows kopf: its settings, its login, and event handlers that do nothing but ring a pool's bell.

No other kind of handler: timers, daemons and delete handlers set finalizers, and a finalizer of an operator that is
gone blocks deletion for ever. kopf's own index keeps what vanished during a relist, so nothing is decided from it.
"""

import dataclasses
import datetime
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import kopf

from tokenpool_api import names
from tokenpool_operator.cluster import PoolKey
from tokenpool_operator.metrics import Metrics

LOGIN_MINUTES = 10
WATCHED_CHILDREN = (("", "v1", "pods"), ("apps", "v1", "deployments"), ("", "v1", "services"))


class EndlessBackoffs:
    """Delays that never end, anew for each request: at the end of a finite list kopf gives up and the process dies."""

    def __iter__(self) -> Iterator[float]:
        """Half a second, doubling to four, each with jitter."""
        delay = 0.5
        while True:
            yield delay * random.uniform(0.5, 1.0)  # noqa: S311  spreads load, keeps no secret
            delay = min(delay * 2, 4.0)


def kopf_settings() -> kopf.OperatorSettings:
    """Settings under which kopf survived 401s, 5xx, cut streams and an API server that was away."""
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.enforce_retry_after = True
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 5
    settings.watching.reconnect_backoff = 1
    settings.watching.chunk_size = 500
    for group, version, plural in WATCHED_CHILDREN:
        settings.watching.label_selectors[group, version, plural] = names.LABEL_POOL
    settings.queueing.error_delays = (1, 1, 2, 5, 10, 20, 30, 60)
    settings.queueing.exit_timeout = 5
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = 20
    return settings


def registry(
    ring: Callable[[PoolKey], None],
    metrics: Metrics,
    *,
    alive: Callable[[], Mapping[str, Any]],
    stop: Callable[[], Awaitable[None]],
) -> kopf.OperatorRegistry:
    """All handlers. `alive` raises when the process should be restarted; `stop` ends our own tasks before kopf ends."""
    handlers = kopf.OperatorRegistry()
    kopf.on.login(registry=handlers)(login)

    @kopf.on.probe(registry=handlers, id="operator", errors=kopf.ErrorsMode.PERMANENT)
    def probe(**_: Any) -> Mapping[str, Any]:
        return alive()

    @kopf.on.cleanup(registry=handlers)
    async def cleanup(**_: Any) -> None:
        await stop()

    _watch_pools(handlers, ring, _age_metric(metrics, names.PLURAL))
    for group, version, plural in WATCHED_CHILDREN:
        _watch_children(handlers, (group, version, plural), ring, _age_metric(metrics, plural))
    return handlers


def login(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo | None:
    """The pod's service account, else KUBECONFIG. Always different from the last one: kopf dies of an equal login."""
    found = kopf.login_with_service_account(settings=settings)
    if found:
        found = dataclasses.replace(found, server=service_address(os.environ) or found.server)
    found = found or kopf.login_with_kubeconfig(settings=settings)
    if found is None:
        return None
    expiration = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=LOGIN_MINUTES)
    return dataclasses.replace(found, expiration=expiration)


def service_address(environ: Mapping[str, str]) -> str | None:
    """The API server by the address that every pod is given; kopf takes its name, which needs a working DNS."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _age_metric(metrics: Metrics, resource: str) -> Callable[[], None]:
    """Returns what a handler calls at each event."""
    last = time.monotonic()

    def touch() -> None:
        nonlocal last
        last = time.monotonic()

    metrics.watch_ages(resource, lambda: time.monotonic() - last)
    return touch


def _watch_pools(handlers: kopf.OperatorRegistry, ring: Callable[[PoolKey], None], touch: Callable[[], None]) -> None:
    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=handlers, id="pool")
    async def pool(*, namespace: str | None, name: str, **_: Any) -> None:
        touch()
        ring((str(namespace), name))


def _watch_children(
    handlers: kopf.OperatorRegistry,
    resource: tuple[str, str, str],
    ring: Callable[[PoolKey], None],
    touch: Callable[[], None],
) -> None:
    group, version, plural = resource

    @kopf.on.event(group, version, plural, registry=handlers, id=plural)
    async def child(*, namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
        touch()
        pool = labels.get(names.LABEL_POOL)
        if pool:
            ring((str(namespace), pool))
