"""Watches the pool's EndpointSlices, of shards and of routers, and its roster. The only room that talks to Kubernetes.

Both stay as they are while the API server or the operator is away.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from tokenpool_api import names
from tokenpool_kube import Cluster, Informer, kinds
from tokenpool_kube.informer import Snapshot, Source
from tokenpool_router.control.membership import SERVICE_LABEL, Members, hosts
from tokenpool_router.control.roster import read_roster

log = logging.getLogger(__name__)


OnRouters = Callable[[Mapping[str, str]], None]


async def watch_pool(
    pool: str, namespace: str, members: Members, on_change: Callable[[], None], *, on_routers: OnRouters
) -> None:
    """Keep `members` current until cancelled; `on_routers` gets the hosts of the pool's routers by pod.

    Raises NotConfigured outside a cluster.
    """
    async with await Cluster.connect() as cluster:
        await follow_pool(cluster, pool, namespace, members, on_change, on_routers=on_routers)


async def follow_pool(
    source: Source,
    pool: str,
    namespace: str,
    members: Members,
    on_change: Callable[[], None],
    *,
    on_routers: OnRouters,
) -> None:
    """The same, from an API server or what a test has for one."""

    async def slices_changed(snapshot: Snapshot) -> None:
        members.set_slices(snapshot.values())
        on_change()

    async def routers_changed(snapshot: Snapshot) -> None:
        on_routers(hosts(snapshot.values()))

    async def roster_changed(snapshot: Snapshot) -> None:
        try:
            members.set_roster(read_roster(next(iter(snapshot.values()), None)))
        except ValueError as error:
            log.error("the roster of pool %s cannot be read, the last one stays: %s", pool, error)
            return
        on_change()

    labels = f"{SERVICE_LABEL}={names.shards_service_name(pool)}"
    own_labels = f"{SERVICE_LABEL}={names.service_name(pool)}"
    fields = f"metadata.name={names.roster_name(pool)}"
    slices = Informer(source, kinds.ENDPOINT_SLICE, namespace, slices_changed, labels=labels)
    routers = Informer(source, kinds.ENDPOINT_SLICE, namespace, routers_changed, labels=own_labels)
    roster = Informer(source, kinds.CONFIG_MAP, namespace, roster_changed, fields=fields)
    async with asyncio.TaskGroup() as group:
        group.create_task(slices.run())
        group.create_task(routers.run())
        group.create_task(roster.run())
