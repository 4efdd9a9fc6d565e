"""The scripted kubelet on a real API server: what the operator's tests stand on must itself be true."""

import asyncio
from typing import Any

import pytest

from support.kubelet import Kubelet
from support.pod_scripts import (
    CrashLoop,
    ImagePullBackOff,
    NeverReady,
    Ready,
    Script,
    StaysPending,
    Terminated,
    pod_status,
)
from support.settle import assert_becomes, assert_settles
from tokenpool_kube import Cluster, Object, kinds

WATCHED = (kinds.POD, kinds.SERVICE, kinds.ENDPOINT_SLICE, kinds.DEPLOYMENT, kinds.CONFIG_MAP)


def pod_spec() -> Object:
    """The least that Pod Security "restricted" lets in."""
    allowed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    seccomp = {"type": "RuntimeDefault"}
    return {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": seccomp},
        "containers": [{"name": "engine", "image": "none", "securityContext": allowed}],
    }


async def make_pod(api: Cluster, namespace: str, name: str = "a", **spec: object) -> Object:
    metadata = {"name": name, "labels": {"app": "test"}}
    return await api.create(kinds.POD, namespace, {"metadata": metadata, "spec": {**pod_spec(), **spec}})


def condition(pod: Object, kind: str) -> str | None:
    return next((item["status"] for item in pod["status"].get("conditions", []) if item["type"] == kind), None)


async def get_pod(api: Cluster, namespace: str, name: str = "a") -> Object:
    pod = await api.get(kinds.POD, namespace, name)
    assert pod is not None
    return pod


async def assert_ready(api: Cluster, namespace: str, name: str = "a", ready: str = "True") -> None:
    async def is_so() -> bool:
        return condition(await get_pod(api, namespace, name), "Ready") == ready

    await assert_becomes(is_so)


async def test_a_pod_becomes_ready_has_an_address_and_ends(api: Cluster, namespace: str, kubelet: Kubelet) -> None:
    pods = [await make_pod(api, namespace, name) for name in ("a", "b")]
    addresses = set()
    for pod in pods:
        await assert_ready(api, namespace, pod["metadata"]["name"])
        seen = await get_pod(api, namespace, pod["metadata"]["name"])
        assert (seen["spec"]["nodeName"], seen["status"]["phase"]) == (kubelet.node, "Running")
        addresses.add(seen["status"]["podIP"])
    assert len(addresses) == 2
    await api.delete(kinds.POD, namespace, "a", uid=pods[0]["metadata"]["uid"])

    async def has_ended() -> bool:
        return await api.get(kinds.POD, namespace, "a") is None

    await assert_becomes(has_ended)


async def test_readiness_and_the_end_come_after_their_delays(api: Cluster, namespace: str, kubelet: Kubelet) -> None:
    kubelet.default = Ready(after_seconds=1.0, drain_seconds=1.5)
    pod = await make_pod(api, namespace)
    await assert_ready(api, namespace, ready="False")
    await assert_ready(api, namespace)
    await api.delete(kinds.POD, namespace, "a", uid=pod["metadata"]["uid"])
    draining = await get_pod(api, namespace)
    assert "deletionTimestamp" in draining["metadata"]

    async def has_ended() -> bool:
        return await api.get(kinds.POD, namespace, "a") is None

    await assert_becomes(has_ended)


@pytest.mark.parametrize(
    ("script", "phase", "state"),
    [
        (NeverReady(), "Running", ("running", None, None)),
        (ImagePullBackOff(), "Pending", ("waiting", "ImagePullBackOff", None)),
        (
            Terminated("ModelNotFound: no such folder"),
            "Running",
            ("terminated", "Error", "ModelNotFound: no such folder"),
        ),
        (CrashLoop("OutOfMemory: 1 GiB"), "Running", ("waiting", "CrashLoopBackOff", None)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Script) else "",
)
async def test_troubles(
    api: Cluster,
    namespace: str,
    kubelet: Kubelet,
    script: Script,
    phase: str,
    state: tuple[str, str | None, str | None],
) -> None:
    kubelet.plan(lambda pod: pod["metadata"]["name"] == "a", script)
    await make_pod(api, namespace)
    await assert_ready(api, namespace, ready="False")
    status = (await get_pod(api, namespace))["status"]
    assert status["phase"] == phase
    [container] = status["containerStatuses"]
    [(kind, told)] = container["state"].items()
    assert kind == state[0]
    assert told.get("reason") == state[1]
    if state[2] is not None:
        assert told["message"] == state[2]
    if isinstance(script, CrashLoop):
        assert container["lastState"]["terminated"]["message"] == script.message
        assert container["restartCount"] == 3


async def test_a_pod_that_fits_nowhere_stays_unbound(api: Cluster, namespace: str, kubelet: Kubelet) -> None:
    kubelet.default = StaysPending("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    await make_pod(api, namespace)

    async def is_refused() -> bool:
        return condition(await get_pod(api, namespace), "PodScheduled") == "False"

    await assert_becomes(is_refused)
    pod = await get_pod(api, namespace)
    assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)


async def test_the_script_of_a_running_pod_can_change(api: Cluster, namespace: str, kubelet: Kubelet) -> None:
    await make_pod(api, namespace)
    await assert_ready(api, namespace)
    await kubelet.play(namespace, "a", CrashLoop("OutOfMemory: 1 GiB"))
    await assert_ready(api, namespace, ready="False")
    await kubelet.play(namespace, "a", Ready())
    await assert_ready(api, namespace)


async def test_controllers_see_real_pods_and_all_goes_quiet(api: Cluster, namespace: str, kubelet: Kubelet) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await api.create(kinds.DEPLOYMENT, namespace, {"metadata": {"name": "web"}, "spec": spec})
    ports = [{"name": "api", "port": 8000}]
    service = {"metadata": {"name": "web"}, "spec": {"clusterIP": "None", "selector": labels, "ports": ports}}
    await api.create(kinds.SERVICE, namespace, service)

    async def all_serve() -> bool:
        deployment = await api.get(kinds.DEPLOYMENT, namespace, "web")
        assert deployment is not None
        slices = await api.list(kinds.ENDPOINT_SLICE, namespace, labels="kubernetes.io/service-name=web")
        ready = [end for item in slices.items for end in item["endpoints"] or [] if end["conditions"]["ready"]]
        return deployment["status"].get("readyReplicas") == 2 and len(ready) == 2

    await assert_settles(api, namespace, all_serve, quiet_seconds=2, watched=WATCHED)


async def test_settling_notices_a_busybody(api: Cluster, namespace: str) -> None:
    async def meddle() -> None:
        for number in range(1000):
            body = {"metadata": {"name": "a"}, "data": {"number": str(number)}}
            await api.apply(kinds.CONFIG_MAP, namespace, "a", body, manager="test")
            await asyncio.sleep(0.2)

    async def is_there() -> bool:
        return await api.get(kinds.CONFIG_MAP, namespace, "a") is not None

    busybody = asyncio.create_task(meddle())
    with pytest.raises(AssertionError, match=r"changed.*ConfigMap/a"):
        await assert_settles(api, namespace, is_there, within_seconds=2, quiet_seconds=1, watched=WATCHED)
    busybody.cancel()
    await asyncio.gather(busybody, return_exceptions=True)


async def test_a_truth_that_never_comes_is_told_with_its_reason() -> None:
    async def never() -> bool:
        observed: dict[str, Any] = {"ready": 0}
        assert observed["ready"] == 2
        return True

    with pytest.raises(AssertionError, match=r"never.*0 == 2"):
        await assert_becomes(never, within_seconds=0.2)


def test_a_pod_that_is_not_restarted_has_failed() -> None:
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}}
    status = pod_status(pod, Terminated("gone", 1), is_ready=True, address="10.0.0.9", now="2026-01-01T00:00:00Z")
    assert status["phase"] == "Failed"
    first, second = status["containerStatuses"]
    assert first["state"]["terminated"]["exitCode"] == 1
    assert "running" in second["state"]
