"""Watches the pool's EndpointSlices and hands members on. The only room that talks to Kubernetes."""

from collections.abc import Callable

from tokenpool_api import names
from tokenpool_kube import Cluster, Informer, kinds
from tokenpool_kube.informer import Snapshot
from tokenpool_router.balancer import Member
from tokenpool_router.membership import SERVICE_LABEL, members


async def watch_shards(pool: str, namespace: str, on_members: Callable[[list[Member]], None]) -> None:
    """Run until cancelled. Members stay as they are while the API server is away. Raises NotConfigured."""

    async def changed(snapshot: Snapshot) -> None:
        on_members(members(snapshot.values()))

    async with await Cluster.connect() as cluster:
        labels = f"{SERVICE_LABEL}={names.shards_service_name(pool)}"
        await Informer(cluster, kinds.ENDPOINT_SLICE, namespace, changed, labels=labels).run()
