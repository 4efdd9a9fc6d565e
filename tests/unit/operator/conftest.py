"""Builders of raw objects, and a fake door: an API server in memory, with its refusals but none of its controllers."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tokenpool_api import names
from tokenpool_kube import AlreadyExists, Conflict, ObjectList
from tokenpool_kube.kinds import Kind
from tokenpool_operator.manifests.metadata import Owner
from tokenpool_operator.settings import Settings

Raw = dict[str, Any]
NAMESPACE = "team-a"
POOL = "chat"
POOL_UID = "uid-of-chat"


@pytest.fixture
def owner() -> Owner:
    return Owner(POOL, NAMESPACE, POOL_UID)


@pytest.fixture
def settings() -> Settings:
    return Settings(engine_image="engine:1", router_image="router:1", replace_seconds=0.0)


def build_pool(spec: Raw | None = None, *, generation: int = 1, status: Raw | None = None) -> Raw:
    """A TokenPool as the API server gives it; `spec` is laid over a minimal one."""
    body: Raw = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": POOL, "namespace": NAMESPACE, "uid": POOL_UID, "generation": generation},
        "spec": {"model": {"source": "file:///model"}, "shards": {"min": 2}} | (spec or {}),
    }
    return body | ({"status": status} if status else {})


def build_pod(
    ordinal: int = 0,
    revision: str = "aaaaaaaa",
    *,
    ready: bool = False,
    node: str = "node-1",
    terminating: bool = False,
    owner_uid: str = POOL_UID,
    status: Raw | None = None,
) -> Raw:
    """A shard pod as the API server gives it."""
    name = names.shard_name(POOL, revision, ordinal)
    labels = {
        names.LABEL_POOL: POOL,
        names.LABEL_COMPONENT: names.COMPONENT_SHARD,
        names.LABEL_REVISION: revision,
        names.LABEL_ORDINAL: str(ordinal),
    }
    meta: Raw = {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}", "labels": labels}
    meta["ownerReferences"] = [{"uid": owner_uid, "controller": True}]
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if terminating:
        meta["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    ready_text = "True" if ready else "False"
    told: Raw = {"phase": "Running", "podIP": f"10.0.0.{ordinal + 1}"}
    told["conditions"] = [{"type": "Ready", "status": ready_text}]
    spec = {"nodeName": node} if node else {}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": told | (status or {})}


@dataclass
class FakeCluster:
    """An API server in memory. Pods stay terminating until `finish_deletes`; nothing ever becomes ready by itself."""

    objects: dict[tuple[str, str, str], Raw] = field(default_factory=dict)
    writes: list[tuple[str, str, str]] = field(default_factory=list)
    faults: dict[tuple[str, str], list[Exception]] = field(default_factory=dict)
    lose_replies: list[tuple[str, str]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def put(self, raw: Raw) -> Raw:
        """Have an object there, whoever made it."""
        item = copy.deepcopy(raw)
        meta = item["metadata"]
        meta.setdefault("uid", f"uid-{next(self._numbers)}")
        meta.setdefault("generation", 1)
        meta["resourceVersion"] = str(next(self._numbers))
        self.objects[(item["kind"], meta["namespace"], meta["name"])] = item
        return item

    def of_kind(self, kind: str) -> list[Raw]:
        return [item for (have, _, _), item in sorted(self.objects.items()) if have == kind]

    def change(self, kind: str, name: str, edit: Callable[[Raw], None]) -> None:
        """Edit in place, as a user or a controller does."""
        item = self.objects[(kind, NAMESPACE, name)]
        edit(item)
        item["metadata"]["resourceVersion"] = str(next(self._numbers))

    def finish_deletes(self) -> None:
        for key in [key for key, item in self.objects.items() if item["metadata"].get("deletionTimestamp")]:
            del self.objects[key]

    def fail(self, verb: str, kind: str, *errors: Exception) -> None:
        """The next calls of this verb and kind raise these errors."""
        self.faults.setdefault((verb, kind), []).extend(errors)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Raw | None:
        self._raise_fault("get", kind.kind)
        return copy.deepcopy(self.objects.get((kind.kind, str(namespace), name)))

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
    ) -> ObjectList:
        self._raise_fault("list", kind.kind)
        wanted = dict(part.split("=") for part in labels.split(",")) if labels else {}
        items = [
            copy.deepcopy(item)
            for item in self.of_kind(kind.kind)
            if wanted.items() <= item["metadata"].get("labels", {}).items()
        ]
        return ObjectList(items, "1")

    async def create(self, kind: Kind, namespace: str | None, body: Raw) -> Raw:
        key = (kind.kind, str(namespace), body["metadata"]["name"])
        self._write("create", *key)
        if key in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{kind.plural} {key[2]!r} already exists")
        return self._answer("create", kind.kind, self.put(body))

    async def apply(
        self, kind: Kind, namespace: str | None, name: str, body: Raw, *, manager: str, force: bool = True
    ) -> Raw:
        self._write("apply", kind.kind, str(namespace), name)
        current = self.objects.get((kind.kind, str(namespace), name))
        uid = body["metadata"].get("uid")
        if uid is not None and (current is None or current["metadata"]["uid"] != uid):
            raise Conflict(409, "Conflict", "Precondition failed: UID")
        if current is not None and not force:
            raise Conflict(409, "Conflict", "conflicts with another manager")
        kept = {"uid": current["metadata"]["uid"]} if current else {}
        status = {"status": current["status"]} if current and "status" in current else {}
        merged = copy.deepcopy(body) | {"metadata": copy.deepcopy(body["metadata"]) | kept} | status
        return self._answer("apply", kind.kind, self.put(merged))

    async def replace_status(self, kind: Kind, namespace: str | None, name: str, body: Raw) -> Raw:
        self._write("status", kind.kind, str(namespace), name)
        current = self.objects[(kind.kind, str(namespace), name)]
        if body["metadata"].get("resourceVersion") != current["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        return self._answer("status", kind.kind, self.put(current | {"status": body["status"]}))

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        self._write("delete", kind.kind, str(namespace), name)
        current = self.objects.get((kind.kind, str(namespace), name))
        if current is None:
            return
        if current["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", "Precondition failed: UID")
        current["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"

    def _write(self, verb: str, kind: str, _namespace: str, name: str) -> None:
        self._raise_fault(verb, kind)
        self.writes.append((verb, kind, name))

    def _raise_fault(self, verb: str, kind: str) -> None:
        pending = self.faults.get((verb, kind))
        if pending:
            raise pending.pop(0)

    def _answer(self, verb: str, kind: str, item: Raw) -> Raw:
        if (verb, kind) in self.lose_replies:
            self.lose_replies.remove((verb, kind))
            raise ConnectionResetError("the reply was lost")
        return copy.deepcopy(item)


@pytest.fixture
def fake_cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def pool_of() -> Callable[..., Raw]:
    return build_pool


@pytest.fixture
def pod_of() -> Callable[..., Raw]:
    return build_pod
