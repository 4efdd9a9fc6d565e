"""What a user sees: one operator process over the whole cluster, pools that are made, changed, broken and healed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.controlplane import ControlPlane
from support.kubelet import Kubelet
from support.operator_process import OperatorProcess
from support.pod_scripts import CrashLoop, ImagePullBackOff, NeverReady, StaysPending
from support.pools import Pool, change
from support.settle import assert_becomes, assert_settles
from tokenpool_kube import Cluster, kinds

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def process(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    log = tmp_path_factory.mktemp("operator") / "log"
    operator = OperatorProcess(Path(control_plane.kubeconfig), log, lease_namespace="default")
    yield operator
    operator.kill()


@pytest.fixture
async def pool(
    process: OperatorProcess, api: Cluster, namespace: str, crd: str, kubelet: Kubelet
) -> AsyncIterator[Pool]:
    """A name for a pool, with an operator at work and a node that plays."""
    if process.process is None:
        process.start()
    said = len(process.log())
    yield Pool(api, namespace)
    unexpected = [line for line in process.log()[said:].splitlines() if " ERROR " in line or "Traceback" in line]
    assert unexpected == []


def runs(image: str) -> Any:
    return lambda pod: pod["spec"]["containers"][0]["image"] == image


async def test_a_pool_gets_shards_and_a_router(pool: Pool) -> None:
    await pool.apply()
    await assert_settles(pool.api, pool.namespace, pool.is_ready(2), quiet_seconds=1.0)
    uid = (await pool.get())["metadata"]["uid"]
    children = [item for item in await pool.children() if not item["metadata"]["name"].startswith("chat-router-")]
    assert sorted((item["kind"], item["metadata"]["name"]) for item in children if item["kind"] != "Pod") == [
        ("Deployment", "chat-router"),
        ("NetworkPolicy", "chat-router"),
        ("NetworkPolicy", "chat-shards"),
        ("PodDisruptionBudget", "chat-shards"),
        ("Role", "chat-router"),
        ("RoleBinding", "chat-router"),
        ("Service", "chat"),
        ("Service", "chat-shards"),
        ("ServiceAccount", "chat-router"),
        ("ServiceAccount", "chat-shards"),
    ]
    for item in children:
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("TokenPool", uid, True)
    slices = await pool.api.list(kinds.ENDPOINT_SLICE, pool.namespace, labels="kubernetes.io/service-name=chat-shards")
    targets = [end["targetRef"]["name"] for found in slices.items for end in found["endpoints"] or []]
    assert sorted(targets) == [pod["metadata"]["name"] for pod in await pool.shards()]
    assert "finalizers" not in (await pool.get())["metadata"]


async def test_a_deleted_shard_and_a_deleted_service_come_back(pool: Pool) -> None:
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    before = await pool.shards()
    await pool.api.delete(kinds.POD, pool.namespace, before[0]["metadata"]["name"], uid=before[0]["metadata"]["uid"])
    service = await pool.api.get(kinds.SERVICE, pool.namespace, "chat")
    assert service is not None
    await pool.api.delete(kinds.SERVICE, pool.namespace, "chat", uid=service["metadata"]["uid"])

    async def healed() -> bool:
        return await pool.api.get(kinds.SERVICE, pool.namespace, "chat") is not None and await pool.is_ready(2)()

    await assert_settles(pool.api, pool.namespace, healed, quiet_seconds=1.0)
    after = await pool.shards()
    assert [pod["metadata"]["name"] for pod in after] == [pod["metadata"]["name"] for pod in before]
    assert after[0]["metadata"]["uid"] != before[0]["metadata"]["uid"]


async def test_scaling_up_down_and_by_the_scale_subresource(pool: Pool) -> None:
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    await pool.apply(shards={"min": 5})
    await assert_becomes(pool.is_ready(5))
    await pool.apply(shards={"min": 1})
    await assert_becomes(pool.is_ready(1))
    assert await pool.ordinals() == ["0"]
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "chat", "namespace": pool.namespace},
        "spec": {"replicas": 3},
    }
    path = kinds.TOKENPOOL.path(pool.namespace, "chat", "scale")
    await pool.api._request("PUT", path, body=scale)
    await assert_becomes(pool.is_ready(3))
    told = await pool.api._request("GET", path)
    assert (told["status"]["replicas"], told["status"]["selector"]) == (3, (await pool.status())["selector"])


async def test_a_failed_shard_is_replaced(pool: Pool) -> None:
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    pod = (await pool.shards())[1]
    evicted = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}}
    await pool.api.replace_status(kinds.POD, pool.namespace, pod["metadata"]["name"], pod | evicted)

    async def replaced() -> bool:
        uids = [item["metadata"]["uid"] for item in await pool.shards()]
        return pod["metadata"]["uid"] not in uids and await pool.is_ready(2)()

    await assert_settles(pool.api, pool.namespace, replaced, quiet_seconds=1.0)


async def test_a_rollout_keeps_serving_and_ends(pool: Pool, kubelet: Kubelet) -> None:
    await pool.apply(shards={"min": 3})
    await assert_becomes(pool.is_ready(3))
    least, most = 3, 3

    async def watch() -> None:
        nonlocal least, most
        while True:
            pods = [pod for pod in await pool.shards() if not pod["metadata"].get("deletionTimestamp")]
            ready = [pod for pod in pods if {"type": "Ready", "status": "True"}.items() <= _ready(pod).items()]
            least, most = min(least, len(ready)), max(most, len(pods))
            await asyncio.sleep(0.02)

    watcher = asyncio.create_task(watch())
    await pool.apply(shards={"min": 3}, image="engine:2")
    await assert_becomes(pool.is_ready(3))
    watcher.cancel()
    assert {pod["spec"]["containers"][0]["image"] for pod in await pool.shards()} == {"engine:2"}
    assert (least, most) == (3, 4)
    assert (await pool.status())["revision"]["updating"] == ""


def _ready(pod: Raw) -> Raw:
    found = [item for item in pod.get("status", {}).get("conditions", []) if item["type"] == "Ready"]
    return found[0] if found else {}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (ImagePullBackOff(), "ImagePullBackOff"),
        (StaysPending(), "Unschedulable"),
        (CrashLoop("ModelNotFound: /model has no config.json."), "ModelNotFound"),
    ],
)
async def test_a_bad_spec_says_why_and_the_good_one_heals(
    pool: Pool, kubelet: Kubelet, script: Any, reason: str
) -> None:
    kubelet.plan(runs("engine:bad"), script)
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    await pool.apply(image="engine:bad")
    await assert_becomes(
        pool.has(Ready=f"-{reason}", Available="+Serving", Degraded=f"+{reason}", Progressing="-Stalled")
    )
    assert len(await pool.shards()) == 3
    await pool.apply(image="engine:3")
    await assert_settles(pool.api, pool.namespace, pool.is_ready(2), quiet_seconds=1.0)


async def test_a_bad_first_spec_is_healed_too(pool: Pool, kubelet: Kubelet) -> None:
    kubelet.plan(runs("engine:bad"), NeverReady())
    await pool.apply(image="engine:bad")
    await assert_becomes(pool.has(Ready="-ShardsNotReady", Available="-NoReadyShard"))
    await pool.apply()
    await assert_settles(pool.api, pool.namespace, pool.is_ready(2), quiet_seconds=1.0)


async def test_paused_is_left_alone(pool: Pool) -> None:
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    await pool.apply(paused=True, shards={"min": 4})
    await assert_settles(
        pool.api, pool.namespace, pool.has(Progressing="-Paused", Ready="-ShardsNotReady"), quiet_seconds=1.0
    )
    assert len(await pool.shards()) == 2
    await pool.apply(shards={"min": 4})
    await assert_becomes(pool.is_ready(4))


async def test_a_taken_name_is_a_condition(pool: Pool) -> None:
    foreign = {"metadata": {"name": "chat"}, "spec": {"ports": [{"port": 5432}]}}
    made = await pool.api.create(kinds.SERVICE, pool.namespace, foreign)
    await pool.apply()
    await assert_becomes(pool.has(Degraded="+NameConflict", Ready="-NameConflict"))
    assert len(await pool.shards()) == 2
    await pool.api.delete(kinds.SERVICE, pool.namespace, "chat", uid=made["metadata"]["uid"])
    await assert_becomes(pool.is_ready(2))


async def test_an_edited_child_is_put_right(pool: Pool) -> None:
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    service = await pool.api.get(kinds.SERVICE, pool.namespace, "chat")
    assert service is not None
    spec = service["spec"] | {"selector": {"app": "mine"}}
    await change(pool.api, kinds.SERVICE, pool.namespace, "chat", spec=spec)

    async def put_right() -> bool:
        found = await pool.api.get(kinds.SERVICE, pool.namespace, "chat")
        return found is not None and "app" not in found["spec"]["selector"]

    await assert_settles(pool.api, pool.namespace, put_right, quiet_seconds=1.0)
