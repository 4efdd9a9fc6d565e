"""The operator's only door to the API server: which kinds a pool has, how they are read, and that each write is counted
and allowed. It must not know why something is written.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tokenpool_api import names
from tokenpool_kube import ClusterError, ObjectList, kinds
from tokenpool_kube.kinds import Kind
from tokenpool_operator.metrics import Metrics

Raw = dict[str, Any]
PoolKey = tuple[str, str]
"""Namespace and name."""

STANDING_KINDS = (
    kinds.CONFIG_MAP,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
    kinds.ROLE,
    kinds.ROLE_BINDING,
    kinds.NETWORK_POLICY,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.DEPLOYMENT,
)
BY_NAME: Mapping[str, Kind] = {kind.kind: kind for kind in (*STANDING_KINDS, kinds.POD)}


class NotLeading(ClusterError):
    """The lease ran out between two writes; another replica may be at work already."""


class ApiServer(Protocol):
    """What is used of `tokenpool_kube.Cluster`; tests have their own."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Raw | None:
        """One object, or None."""

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
    ) -> ObjectList:
        """A consistent list."""

    async def create(self, kind: Kind, namespace: str | None, body: Raw) -> Raw:
        """Create."""

    async def apply(
        self, kind: Kind, namespace: str | None, name: str, body: Raw, *, manager: str, force: bool = True
    ) -> Raw:
        """Server-side apply."""

    async def replace_status(self, kind: Kind, namespace: str | None, name: str, body: Raw) -> Raw:
        """Replace the status."""

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Delete by UID."""


class Door:
    """Reads and writes of one replica. `may_write` is asked before every write."""

    def __init__(self, api: ApiServer, metrics: Metrics, may_write: Callable[[], bool]) -> None:
        self._api = api
        self._metrics = metrics
        self._may_write = may_write

    async def pool(self, key: PoolKey) -> Raw | None:
        """The pool as it is now, or None."""
        return await self._api.get(kinds.TOKENPOOL, *key)

    async def children(self, key: PoolKey) -> tuple[list[Raw], dict[str, list[Raw]]]:
        """Fresh lists of what carries the pool's label: its pods, and the rest by kind."""
        namespace, name = key
        labels = f"{names.LABEL_POOL}={name}"
        lists = await asyncio.gather(
            *(self._api.list(kind, namespace, labels=labels) for kind in (kinds.POD, *STANDING_KINDS))
        )
        pods, *others = (found.items for found in lists)
        return pods, {kind.kind: items for kind, items in zip(STANDING_KINDS, others, strict=True)}

    async def mount_failures(self, namespace: str) -> dict[str, str]:
        """What kubelets said of volumes that cannot be mounted, by the pod's UID; they say it nowhere else."""
        found = await self._api.list(kinds.EVENT, namespace, fields="reason=FailedMount,regarding.kind=Pod")
        return {item["regarding"].get("uid", ""): item.get("note", "") for item in found.items if "regarding" in item}

    async def get(self, kind: str, namespace: str, name: str) -> Raw | None:
        """One child by name, whoever owns it."""
        return await self._api.get(BY_NAME[kind], namespace, name)

    async def create(self, body: Raw) -> None:
        """Raises AlreadyExists when the name is taken."""
        self._count("create", body["kind"])
        await self._api.create(BY_NAME[body["kind"]], body["metadata"]["namespace"], body)

    async def apply(self, body: Raw, *, force: bool) -> None:
        """Server-side apply under our one field manager."""
        self._count("apply", body["kind"])
        meta = body["metadata"]
        kind = BY_NAME[body["kind"]]
        await self._api.apply(kind, meta["namespace"], meta["name"], body, manager=names.MANAGER, force=force)

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object of this UID; gone already is fine."""
        self._count("delete", kind)
        await self._api.delete(BY_NAME[kind], namespace, name, uid=uid)

    async def write_status(self, pool: Raw) -> None:
        """Replace the whole status. Raises Conflict when the pool changed since it was read."""
        self._count("status", names.KIND)
        await self._api.replace_status(kinds.TOKENPOOL, pool["metadata"]["namespace"], pool["metadata"]["name"], pool)

    async def tell(self, event: Raw) -> None:
        """Create an event. Raises AlreadyExists when it was told before."""
        self._count("create", "Event")
        await self._api.create(kinds.EVENT, event["metadata"]["namespace"], event)

    def _count(self, verb: str, kind: str) -> None:
        if not self._may_write():
            raise NotLeading(f"{verb} {kind}: the lease is not ours any more")
        self._metrics.writes.labels(verb, kind).inc()
