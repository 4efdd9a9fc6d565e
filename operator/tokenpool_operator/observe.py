"""Raw lists of a pool's children in, one frozen picture out. Pure: it neither reads nor wants anything.

Only what the pool's UID controls counts; a foreign object with our labels is left out, its name stays taken.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tokenpool_api import names
from tokenpool_api.status import ShardState
from tokenpool_operator import trouble
from tokenpool_operator.trouble import Trouble

Raw = dict[str, Any]
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Shard:
    """One shard pod."""

    name: str
    uid: str
    revision: str
    ordinal: int
    state: ShardState
    node: str = ""
    address: str = ""
    created_at: float = 0.0
    ended: bool = False
    """Phase Failed or Succeeded: this pod never runs again."""
    trouble: Trouble | None = None

    @property
    def is_terminating(self) -> bool:
        """It is leaving, and its name is taken until it is gone."""
        return self.state is ShardState.DRAINING

    @property
    def is_ready(self) -> bool:
        """It answers requests and stays."""
        return self.state is ShardState.READY

    @property
    def is_live(self) -> bool:
        """It is there to stay: neither leaving nor at its end."""
        return not self.is_terminating and not self.ended


@dataclass(frozen=True)
class RouterState:
    """The pool's routers as their Deployment tells."""

    available: int = 0
    settled: bool = False
    """Every router is of the wanted template and available."""
    trouble: Trouble | None = None


@dataclass(frozen=True)
class Observed:
    """Everything that a pool owned at one moment. `children` maps (kind, name) to the raw object, pods left out."""

    shards: tuple[Shard, ...] = ()
    router: RouterState = RouterState()
    children: Mapping[tuple[str, str], Raw] = field(default_factory=dict)
    is_preparing: bool = False
    """A pod of it has a node and has not begun."""

    def ready_addresses(self) -> tuple[str, ...]:
        """Pod addresses of the ready shards."""
        return tuple(shard.address for shard in self.shards if shard.is_ready and shard.address)


def observe(
    pool_uid: str,
    pods: Iterable[Raw],
    others: Mapping[str, Iterable[Raw]],
    mount_failures: Mapping[str, str] = NOTHING,
) -> Observed:
    """Build the picture. `others` maps a kind such as Service to its listed objects, `mount_failures` a pod's UID to
    what its kubelet said.
    """
    pods = list(pods)
    owned = [pod for pod in pods if owner_uid(pod) == pool_uid]
    shards = [
        _shard(pod, mount_failures) for pod in owned if _label(pod, names.LABEL_COMPONENT) == names.COMPONENT_SHARD
    ]
    children = {
        (kind, item["metadata"]["name"]): item
        for kind, items in others.items()
        for item in items
        if owner_uid(item) == pool_uid
    }
    deployments = [item for (kind, _), item in children.items() if kind == "Deployment"]
    # Router pods belong to the Deployment's ReplicaSet, so they are told by their labels.
    router_pods = [pod for pod in pods if _label(pod, names.LABEL_COMPONENT) == names.COMPONENT_ROUTER]
    return Observed(
        shards=tuple(sorted(shards, key=lambda shard: (shard.revision, shard.ordinal, shard.name))),
        router=_router(deployments[0], router_pods, mount_failures) if deployments else RouterState(),
        children=children,
        is_preparing=any(trouble.is_preparing(pod) for pod in pods),
    )


def created_at(item: Raw) -> float:
    """When it was made, in seconds since the epoch."""
    timestamp = item["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def owner_uid(item: Raw) -> str | None:
    """UID of the controlling owner, if there is one."""
    for reference in item["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            return str(reference["uid"])
    return None


def _shard(pod: Raw, mount_failures: Mapping[str, str]) -> Shard:
    meta, status = pod["metadata"], pod.get("status", {})
    ended = status.get("phase") in ("Failed", "Succeeded")
    ready = not ended and _is_true(status, "Ready")
    problem = None if ready else trouble.of_pod(pod, mount_failures.get(meta["uid"], ""))
    return Shard(
        name=meta["name"],
        uid=meta["uid"],
        revision=_label(pod, names.LABEL_REVISION),
        ordinal=_ordinal(pod),
        state=_state(pod, ready=ready, failing=problem is not None),
        node=pod.get("spec", {}).get("nodeName", ""),
        address=status.get("podIP", ""),
        created_at=created_at(pod),
        ended=ended,
        trouble=problem,
    )


def _state(pod: Raw, *, ready: bool, failing: bool) -> ShardState:
    if pod["metadata"].get("deletionTimestamp"):
        return ShardState.DRAINING
    if ready:
        return ShardState.READY
    if failing:
        return ShardState.FAILING
    return ShardState.STARTING if pod.get("spec", {}).get("nodeName") else ShardState.PENDING


def _router(deployment: Raw, pods: Iterable[Raw], mount_failures: Mapping[str, str]) -> RouterState:
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    available = status.get("availableReplicas", 0)
    seen = status.get("observedGeneration") == deployment["metadata"].get("generation")
    settled = seen and status.get("updatedReplicas", 0) == status.get("replicas", 0) == available == wanted
    return RouterState(available, settled, _router_trouble(pods, mount_failures) or _replica_failure(status))


def _router_trouble(pods: Iterable[Raw], mount_failures: Mapping[str, str]) -> Trouble | None:
    """The first trouble by pod name; ready and leaving pods have none."""
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        problem = trouble.of_pod(pod, mount_failures.get(pod["metadata"].get("uid", ""), ""))
        if problem and not pod["metadata"].get("deletionTimestamp") and not _is_true(pod.get("status", {}), "Ready"):
            return problem
    return None


def _replica_failure(status: Raw) -> Trouble | None:
    """A quota or an admission rule that refuses router pods shows only in the Deployment."""
    for condition in status.get("conditions") or []:
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Trouble(condition.get("reason") or "ReplicaFailure", condition.get("message", ""))
    return None


def _is_true(status: Raw, condition_type: str) -> bool:
    return any(item["type"] == condition_type and item["status"] == "True" for item in status.get("conditions") or [])


def _label(item: Raw, label: str) -> str:
    return str((item["metadata"].get("labels") or {}).get(label, ""))


def _ordinal(pod: Raw) -> int:
    text = _label(pod, names.LABEL_ORDINAL)
    return int(text) if text.isdecimal() else -1
