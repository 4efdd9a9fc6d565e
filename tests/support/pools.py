"""TokenPools as a test's user handles them: make, edit, look at. Knows the API, not who reconciles it."""

from collections.abc import Awaitable, Callable
from typing import Any

from tokenpool_api import names
from tokenpool_kube import Cluster, Kind, kinds

Raw = dict[str, Any]
CHILD_KINDS = (
    kinds.POD,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
    kinds.ROLE,
    kinds.ROLE_BINDING,
    kinds.NETWORK_POLICY,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.DEPLOYMENT,
)


class Pool:
    """One pool, by name."""

    def __init__(self, api: Cluster, namespace: str, name: str = "chat") -> None:
        self.api = api
        self.namespace = namespace
        self.name = name

    async def apply(self, **spec: Any) -> Raw:
        """Make it or change it, as `kubectl apply` does with the whole spec."""
        whole = {"model": {"source": "file:///model"}, "shards": {"min": 2}} | spec
        body = {"metadata": {"name": self.name}, "spec": whole}
        return await self.api.apply(kinds.TOKENPOOL, self.namespace, self.name, body, manager="user")

    async def get(self) -> Raw:
        """The object as it is now."""
        pool = await self.api.get(kinds.TOKENPOOL, self.namespace, self.name)
        assert pool is not None, f"there is no pool {self.name}"
        return pool

    async def delete(self) -> None:
        """Background deletion, as `kubectl delete` does."""
        uid = (await self.get())["metadata"]["uid"]
        await self.api.delete(kinds.TOKENPOOL, self.namespace, self.name, uid=uid)

    async def status(self) -> Raw:
        """The status, or {}."""
        status: Raw = (await self.get()).get("status", {})
        return status

    async def conditions(self) -> dict[str, str]:
        """Each condition as +Reason or -Reason."""
        found = (await self.status()).get("conditions", [])
        return {item["type"]: ("+" if item["status"] == "True" else "-") + item["reason"] for item in found}

    async def shards(self) -> list[Raw]:
        """Shard pods, leaving ones too, by name."""
        labels = f"{names.LABEL_POOL}={self.name},{names.LABEL_COMPONENT}={names.COMPONENT_SHARD}"
        pods = (await self.api.list(kinds.POD, self.namespace, labels=labels)).items
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    async def ordinals(self) -> list[str]:
        """Ordinals of the shard pods."""
        return [pod["metadata"]["labels"][names.LABEL_ORDINAL] for pod in await self.shards()]

    async def children(self) -> list[Raw]:
        """Everything that carries the pool's label."""
        labels = f"{names.LABEL_POOL}={self.name}"
        return [
            item for kind in CHILD_KINDS for item in (await self.api.list(kind, self.namespace, labels=labels)).items
        ]

    def is_ready(self, shards: int) -> Callable[[], Awaitable[bool]]:
        """A predicate: the status speaks of the newest spec, and all is well with so many shards."""

        async def ready() -> bool:
            pool = await self.get()
            status = pool.get("status", {})
            conditions = await self.conditions()
            assert status.get("observedGeneration") == pool["metadata"]["generation"], status
            assert conditions.get("Ready") == "+AllReady", conditions
            assert len(await self.shards()) == shards
            assert conditions["Progressing"] == "-Settled", conditions
            return True

        return ready

    def has(self, **conditions: str) -> Callable[[], Awaitable[bool]]:
        """A predicate: these conditions are so, such as Ready="-ModelNotFound"."""

        async def found() -> bool:
            now = await self.conditions()
            assert conditions.items() <= now.items(), now
            return True

        return found

    async def normalised(self) -> list[tuple[str, str, str]]:
        """Kind, name and spec of everything the operator makes, without what differs between two equal pools."""
        return sorted(
            _without_chance(item, self.name)
            for item in await self.children()
            if item["kind"] != "Pod" or item["metadata"]["labels"][names.LABEL_COMPONENT] == names.COMPONENT_SHARD
        )


def _without_chance(item: Raw, pool: str) -> tuple[str, str, str]:
    """Leaves out what the cluster chooses, and the pool's name, which is in its shards' revision too."""
    spec = item.get("spec", item.get("rules", {}))
    if isinstance(spec, dict):
        spec = {key: value for key, value in spec.items() if key not in ("clusterIP", "clusterIPs", "nodeName")}
    revision = item["metadata"]["labels"].get(names.LABEL_REVISION, "REVISION")
    name, text = (
        told.replace(revision, "REVISION").replace(pool, "POOL") for told in (item["metadata"]["name"], str(spec))
    )
    return item["kind"], name, text


async def change(api: Cluster, kind: Kind, namespace: str, name: str, **fields: Any) -> Raw:
    """Overwrite top-level fields of an object, as somebody with an editor does."""
    item = await api.get(kind, namespace, name)
    assert item is not None
    return await api.replace(kind, namespace, name, item | fields)
