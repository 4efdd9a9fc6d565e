"""A scripted kubelet and scheduler: one node on which pods become Ready, hang, fail or end as told. Runs nothing.

Knows pods and nodes of a real API server; must not know why they were made.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from support.pod_scripts import Ready, Script, StaysPending, pod_status
from tokenpool_kube import (
    Cluster,
    Conflict,
    Informer,
    Kind,
    NotFound,
    Object,
    ServerError,
    TooManyRequests,
    Unreachable,
    kinds,
)
from tokenpool_kube.informer import Snapshot

HEARTBEAT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.2


class Kubelet:
    """`async with Kubelet(cluster) as kubelet:`; pods then play `default`, or what `plan` or `play` says instead.

    Pods that no scheduler has placed are bound to the node. A pod that is being deleted ends after its script's
    `drain_seconds`. Pod addresses are 10.x, unique, and nobody listens there.
    """

    def __init__(self, cluster: Cluster, node: str = "node-1", namespace: str | None = None) -> None:
        self._cluster = cluster
        self.node = node
        self._plans: list[tuple[Callable[[Object], bool], Script]] = []
        self._orders: dict[str, Script] = {}
        self._acts: dict[str, tuple[object, asyncio.Task[None]]] = {}
        self._addresses: dict[str, str] = {}
        self._numbers = itertools.count(256)
        self._bugs: list[BaseException] = []
        self._informer = Informer(cluster, kinds.POD, namespace, self._on_pods)
        self.default: Script = Ready()

    async def __aenter__(self) -> Self:
        await _ensure(self._cluster, kinds.NODE, None, self.node, {})
        await self._persist(self._beat)
        self._tasks = [self._start(self._informer.run()), self._start(self._keep_beating())]
        await self._informer.wait_synced()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A node whose heart stops is marked NotReady later, in the middle of another test.
        if (node := await self._cluster.get(kinds.NODE, None, self.node)) is not None:
            await self._cluster.delete(kinds.NODE, None, self.node, uid=node["metadata"]["uid"])
        tasks = [*self._tasks, *(task for _, task in self._acts.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._bugs:
            raise BaseExceptionGroup("the scripted kubelet failed", self._bugs)

    def plan(self, applies: Callable[[Object], bool], script: Script) -> None:
        """Pods for which `applies` holds will play `script`, from their next change on. Later plans win."""
        self._plans.insert(0, (applies, script))

    async def play(self, namespace: str, name: str, script: Script) -> None:
        """Make one existing pod play `script` from now on, whatever it did until now."""
        pod = await self._cluster.get(kinds.POD, namespace, name)
        if pod is None:
            raise LookupError(f"there is no pod {namespace}/{name}")
        self._orders[pod["metadata"]["uid"]] = script
        self._direct(pod)

    async def _on_pods(self, pods: Snapshot) -> None:
        present = {pod["metadata"]["uid"] for pod in pods.values()}
        for uid in self._acts.keys() - present:
            self._acts.pop(uid)[1].cancel()
        for pod in pods.values():
            if pod["spec"].get("nodeName") in (None, self.node):
                self._direct(pod)

    def _direct(self, pod: Object) -> None:
        """Start the act that this pod should be in, unless it is in it already."""
        uid = pod["metadata"]["uid"]
        script = self._script_for(pod)
        wanted = (script, "deletionTimestamp" in pod["metadata"])
        current = self._acts.get(uid)
        if current is not None:
            if current[0] == wanted:
                return
            current[1].cancel()
        act = self._end(pod, script) if wanted[1] else self._live(pod, script)
        self._acts[uid] = (wanted, self._start(act))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_bug)
        return task

    def _note_bug(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bugs.append(bug)

    def _script_for(self, pod: Object) -> Script:
        ordered = self._orders.get(pod["metadata"]["uid"])
        planned = (script for applies, script in self._plans if applies(pod))
        return ordered or next(planned, self.default)

    async def _live(self, pod: Object, script: Script) -> None:
        if not isinstance(script, StaysPending) and not pod["spec"].get("nodeName"):
            await self._persist(lambda: self._bind(pod))
        waits = isinstance(script, Ready) and script.after_seconds > 0
        await self._persist(lambda: self._show(pod, script, is_ready=not waits))
        if isinstance(script, Ready) and waits:
            await asyncio.sleep(script.after_seconds)
            await self._persist(lambda: self._show(pod, script, is_ready=True))

    async def _end(self, pod: Object, script: Script) -> None:
        if isinstance(script, Ready) and script.drain_seconds > 0:
            await asyncio.sleep(script.drain_seconds)
        metadata = pod["metadata"]
        await self._persist(
            lambda: self._cluster.delete(
                kinds.POD, metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_seconds=0
            )
        )

    async def _persist(self, step: Callable[[], Awaitable[None]]) -> None:
        """A kubelet survives its API server's bad moments. A pod that went away meanwhile needs nothing more."""
        while True:
            try:
                return await step()
            except NotFound:
                return None
            except (Conflict, Unreachable, ServerError, TooManyRequests):
                await asyncio.sleep(RETRY_SECONDS)

    async def _bind(self, pod: Object) -> None:
        metadata = pod["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "target": {"kind": "Node", "name": self.node},
        }
        current = await self._cluster.get(kinds.POD, metadata["namespace"], metadata["name"])
        if current is not None and not current["spec"].get("nodeName"):
            await self._cluster.create_sub(kinds.POD, metadata["namespace"], metadata["name"], "binding", body)

    async def _show(self, pod: Object, script: Script, *, is_ready: bool) -> None:
        metadata = pod["metadata"]
        current = await self._cluster.get(kinds.POD, metadata["namespace"], metadata["name"])
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            return
        address = self._addresses.setdefault(metadata["uid"], self._next_address())
        current["status"] = pod_status(current, script, is_ready=is_ready, address=address, now=_now())
        await self._cluster.replace_status(kinds.POD, metadata["namespace"], metadata["name"], current)

    def _next_address(self) -> str:
        number = next(self._numbers)
        return f"10.200.{number // 256}.{number % 256}"

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await self._persist(self._beat)

    async def _beat(self) -> None:
        """Without a Ready condition that is kept fresh, the node lifecycle controller taints the node and evicts."""
        node = await self._cluster.get(kinds.NODE, None, self.node)
        if node is None:
            return
        amounts = {"cpu": "1000", "memory": "1000Gi", "pods": "2000", "nvidia.com/gpu": "1000"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
        node["status"] = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        await self._cluster.replace_status(kinds.NODE, None, self.node, node)


async def _ensure(cluster: Cluster, kind: Kind, namespace: str | None, name: str, body: dict[str, Any]) -> None:
    with suppress(Conflict):
        await cluster.create(kind, namespace, {"metadata": {"name": name}, **body})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
