"""Whole passes against a fake cluster: what is written, in which order, and what is not."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tokenpool_api import names
from tokenpool_kube import Conflict, Forbidden, Invalid, ServerError
from tokenpool_operator.cluster import Door, NotLeading
from tokenpool_operator.metrics import Metrics
from tokenpool_operator.reconcile import REFUSED_AGAIN_SECONDS, Outcome, Reconciler
from tokenpool_operator.settings import Settings
from tokenpool_operator.utilization import NOTHING_KNOWN, PoolLoad

Raw = dict[str, Any]
KEY = ("team-a", "chat")
FORBIDDEN = Forbidden(403, "Forbidden", 'pods is forbidden: User "op" cannot create resource "pods" in API group ""')


class FixedLoads:
    def __init__(self) -> None:
        self.load = NOTHING_KNOWN
        self.addresses: dict[tuple[str, str], tuple[str, ...]] = {}

    def track(self, key: tuple[str, str], addresses: tuple[str, ...]) -> PoolLoad:
        self.addresses[key] = addresses
        return self.load

    def forget(self, key: tuple[str, str]) -> None:
        self.addresses.pop(key, None)


class Bench:
    """A reconciler on a fake cluster, and hands to play kubelet and controllers."""

    def __init__(self, cluster: Any, settings: Settings) -> None:
        self.cluster = cluster
        self.loads = FixedLoads()
        self.leads = True
        self.now = 1_800_000_000.0
        door = Door(cluster, Metrics(), lambda: self.leads)
        self.reconciler = Reconciler(door, settings, self.loads, lambda: self.now)

    async def run_pass(self) -> list[tuple[str, str, str]]:
        """One pass; returns what it wrote."""
        self.cluster.writes.clear()
        self.outcome = await self.reconciler.run_pass(KEY)
        return list(self.cluster.writes)

    async def settle(self) -> None:
        """Passes, with every pod ready and every deletion done in between, until nothing is written."""
        for _ in range(50):
            if not await self.run_pass():
                return
            self.play_controllers()
        raise AssertionError(f"it does not settle: {self.cluster.writes}")

    def play_controllers(self) -> None:
        self.cluster.finish_deletes()
        for pod in self.cluster.of_kind("Pod"):
            if "status" not in pod:
                self.cluster.change("Pod", pod["metadata"]["name"], make_ready)
        for deployment in self.cluster.of_kind("Deployment"):
            self.cluster.change("Deployment", deployment["metadata"]["name"], make_available)

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.cluster.of_kind("Pod")]

    def roster(self) -> Raw:
        found: Raw = json.loads(self.cluster.objects["ConfigMap", "team-a", "chat-roster"]["data"]["roster.json"])
        return found

    def ordinals(self) -> list[str]:
        return [pod["metadata"]["labels"][names.LABEL_ORDINAL] for pod in self.cluster.of_kind("Pod")]

    def edit(self, **spec: Any) -> None:
        def change(pool: Raw) -> None:
            pool["spec"] |= spec
            pool["metadata"]["generation"] += 1

        self.cluster.change("TokenPool", "chat", change)

    def status(self) -> Raw:
        (pool,) = self.cluster.of_kind("TokenPool")
        status: Raw = pool["status"]
        return status

    def reasons(self) -> dict[str, str]:
        return {item["type"]: item["reason"] for item in self.status()["conditions"]}


def make_ready(pod: Raw) -> None:
    pod["spec"]["nodeName"] = "node-1"
    ordinal = pod["metadata"]["labels"][names.LABEL_ORDINAL]
    pod["status"] = {
        "phase": "Running",
        "podIP": f"10.0.0.{ordinal}",
        "conditions": [{"type": "Ready", "status": "True"}],
    }


def make_available(deployment: Raw) -> None:
    number = deployment["spec"]["replicas"]
    counts = {"replicas": number, "updatedReplicas": number, "availableReplicas": number}
    deployment["status"] = {"observedGeneration": deployment["metadata"]["generation"], **counts}


@pytest.fixture
def bench(fake_cluster: Any, settings: Settings, pool_of: Callable[..., Raw]) -> Bench:
    fake_cluster.put(pool_of())
    return Bench(fake_cluster, settings)


async def test_the_first_pass_makes_everything_and_then_tells(bench: Bench) -> None:
    writes = await bench.run_pass()
    assert [verb for verb, _, _ in writes] == ["apply"] * 11 + ["create"] * 2 + ["status"] + ["create"]
    assert [kind for _, kind, _ in writes[11:]] == ["Pod", "Pod", "TokenPool", "Event"]


async def test_a_settled_pool_causes_no_writes(bench: Bench) -> None:
    await bench.settle()
    assert bench.reasons()["Ready"] == "AllReady"
    assert bench.status()["readySummary"] == "2/2"
    assert bench.loads.addresses[KEY] == ("10.0.0.0", "10.0.0.1")
    assert await bench.run_pass() == []
    assert bench.outcome == Outcome()


async def test_a_pod_without_its_volume_is_explained_by_the_kubelets_event(bench: Bench) -> None:
    await bench.run_pass()
    name = bench.pods()[0]
    bench.cluster.change("Pod", name, lambda pod: pod["spec"].update(nodeName="node-1"))
    (pod,) = [pod for pod in bench.cluster.of_kind("Pod") if pod["metadata"]["name"] == name]
    note = 'MountVolume.SetUp failed for volume "model" : configmap "weights" not found'
    regarding = {"kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
    meta = {"name": "e", "namespace": "team-a"}
    bench.cluster.put({"kind": "Event", "metadata": meta, "regarding": regarding, "note": note})
    await bench.run_pass()
    assert bench.reasons()["Ready"] == "VolumeNotMounted"
    assert bench.outcome.again_seconds is not None
    bench.cluster.fail("list", "Event", Forbidden(403, "Forbidden", "no right"))
    await bench.run_pass()
    assert bench.reasons()["Ready"] == "ShardsNotReady", "without the right to read events the pass goes on"


async def test_a_lost_shard_comes_back_under_its_name(bench: Bench) -> None:
    await bench.settle()
    before = bench.pods()
    del bench.cluster.objects["Pod", "team-a", before[0]]
    await bench.settle()
    assert bench.pods() == before


async def test_scaling_up_and_down(bench: Bench) -> None:
    await bench.settle()
    bench.edit(shards={"min": 4})
    await bench.settle()
    assert bench.ordinals() == ["0", "1", "2", "3"]
    bench.edit(shards={"min": 1})
    writes = await bench.run_pass()
    assert [write[0] for write in writes[:5]] == ["apply"] + ["delete"] * 3 + ["apply"]
    assert writes[0][1] == "ConfigMap", "routers hear of who leaves before it does"
    entries = bench.roster()["shards"]
    assert [entries[name]["draining"] for name in sorted(entries)] == [False, True, True, True]
    await bench.settle()
    assert bench.ordinals() == ["0"]
    (budget,) = bench.cluster.of_kind("PodDisruptionBudget")
    assert budget["spec"]["minAvailable"] == 0


async def test_the_roster_follows_the_shards_and_its_generation_only_rises(bench: Bench) -> None:
    await bench.settle()
    first = bench.roster()
    assert list(first["shards"]) == bench.pods()
    assert {entry["weight"] for entry in first["shards"].values()} == {1.0}
    await bench.settle()
    assert bench.roster() == first
    bench.edit(shards={"min": 3})
    await bench.settle()
    second = bench.roster()
    assert (second["generation"] > first["generation"], len(second["shards"])) == (True, 3)
    bench.cluster.objects["ConfigMap", "team-a", "chat-roster"]["data"]["roster.json"] = "{"
    await bench.settle()
    third = bench.roster()
    assert (third["shards"], third["generation"] > 0) == (second["shards"], True)
    del bench.cluster.objects["ConfigMap", "team-a", "chat-roster"]
    await bench.settle()
    assert bench.roster()["shards"] == second["shards"]


async def test_a_rollout_replaces_every_shard(bench: Bench) -> None:
    await bench.settle()
    before = set(bench.pods())
    bench.edit(image="engine:2")
    await bench.settle()
    assert len(bench.pods()) == 2
    assert not before & set(bench.pods())
    assert bench.status()["revision"]["image"] == "engine:2"


async def test_drift_is_put_right(bench: Bench) -> None:
    await bench.settle()
    bench.cluster.change("Service", "chat", lambda item: item["spec"].update(selector={"a": "b"}))
    assert await bench.run_pass() == [("apply", "Service", "chat")]


async def test_a_paused_pool_is_left_alone_but_reported(bench: Bench) -> None:
    await bench.settle()
    del bench.cluster.objects["Pod", "team-a", bench.pods()[0]]
    bench.edit(paused=True, image="engine:2")
    assert {kind for _, kind, _ in await bench.run_pass()} == {"TokenPool", "Event"}
    assert bench.reasons()["Progressing"] == "Paused"
    assert bench.status()["shards"]["ready"] == 1


async def test_a_spec_of_another_schema_changes_nothing(bench: Bench) -> None:
    await bench.settle()
    pods, before = bench.pods(), bench.status()
    bench.edit(shards={"min": 0, "tolerations": [{"key": "gpu", "effect": "Sometimes"}]})
    assert {kind for _, kind, _ in await bench.run_pass()} == {"TokenPool", "Event"}
    assert bench.pods() == pods
    assert bench.reasons() == {
        "Ready": "InvalidSpec",
        "Available": "Serving",
        "Progressing": "InvalidSpec",
        "Degraded": "InvalidSpec",
        "ScalingActive": "Manual",
    }
    assert "spec.shards.tolerations[0].effect: " in bench.status()["conditions"][0]["message"]
    for same in ("shards", "revision", "selector"):
        assert bench.status()[same] == before[same]
    assert await bench.run_pass() == []


async def test_a_name_too_long_is_an_invalid_spec(fake_cluster: Any, settings: Settings, pool_of: Any) -> None:
    name = "x" * 41
    pool = pool_of()
    pool["metadata"]["name"] = name
    fake_cluster.put(pool)
    bench = Bench(fake_cluster, settings)
    await bench.reconciler.run_pass(("team-a", name))
    assert bench.reasons()["Ready"] == "InvalidSpec"
    assert bench.pods() == []


@pytest.mark.parametrize("change", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, None])
async def test_nothing_is_done_for_a_pool_that_goes(bench: Bench, change: Raw | None) -> None:
    if change is None:
        bench.cluster.objects.clear()
    else:
        bench.cluster.change("TokenPool", "chat", lambda pool: pool["metadata"].update(change))
    assert await bench.run_pass() == []
    assert bench.outcome == Outcome(gone=True)
    assert bench.loads.addresses == {}


async def test_a_foreign_namesake_is_a_condition_and_the_rest_goes_on(bench: Bench) -> None:
    foreign = {"kind": "Service", "metadata": {"name": "chat", "namespace": "team-a"}, "spec": {"mine": True}}
    bench.cluster.put(foreign)
    await bench.run_pass()
    assert bench.reasons()["Degraded"] == "NameConflict"
    assert "Service chat exists" in bench.status()["conditions"][0]["message"]
    assert len(bench.pods()) == 2
    assert bench.cluster.objects["Service", "team-a", "chat"]["spec"] == {"mine": True}
    assert bench.outcome.again_seconds == REFUSED_AGAIN_SECONDS


async def test_a_shard_of_a_former_pool_of_that_name_is_not_ours(bench: Bench) -> None:
    await bench.settle()
    bench.cluster.change("Pod", bench.pods()[0], lambda pod: pod["metadata"]["ownerReferences"][0].update(uid="former"))
    await bench.run_pass()
    assert bench.reasons()["Degraded"] == "NameConflict"
    assert bench.status()["shards"]["ready"] == 1


async def test_a_lost_reply_makes_no_second_shard(bench: Bench) -> None:
    bench.cluster.lose_replies.append(("create", "Pod"))
    with pytest.raises(ConnectionResetError):
        await bench.run_pass()
    await bench.settle()
    assert bench.ordinals() == ["0", "1"]


async def test_a_name_taken_by_ourselves_counts_as_done(bench: Bench) -> None:
    await bench.settle()
    # The list does not show it, as after a request that reached the server twice.
    name = bench.pods()[0]
    bench.cluster.change("Pod", name, lambda pod: pod["metadata"]["labels"].pop(names.LABEL_POOL))
    await bench.run_pass()
    assert bench.reasons()["Degraded"] == "AsExpected"


async def test_a_missing_right_is_told_and_the_rest_goes_on(bench: Bench) -> None:
    bench.cluster.fail("create", "Pod", FORBIDDEN)
    writes = await bench.run_pass()
    assert bench.reasons()["Degraded"] == "Forbidden"
    assert 'cannot create resource "pods"' in bench.status()["conditions"][0]["message"]
    assert len(bench.pods()) == 1
    assert ("create", "Event") in [write[:2] for write in writes]
    await bench.settle()
    assert bench.reasons()["Ready"] == "AllReady"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Forbidden(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q'), "QuotaExceeded"),
        (Forbidden(403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity'), "Refused"),
        (Invalid(422, "Invalid", "spec.containers[0].image: Required value"), "Refused"),
    ],
)
async def test_what_the_cluster_refuses_has_a_word(bench: Bench, error: Exception, reason: str) -> None:
    bench.cluster.fail("create", "Pod", error)
    await bench.run_pass()
    assert bench.reasons()["Degraded"] == reason


async def test_without_the_right_to_look_only_the_reason_changes(bench: Bench) -> None:
    await bench.settle()
    before = bench.status()
    blind = Forbidden(403, "Forbidden", 'pods is forbidden: User "op" cannot list resource "pods"')
    bench.cluster.fail("list", "Pod", blind)
    with pytest.raises(Forbidden):
        await bench.run_pass()
    assert bench.reasons()["Degraded"] == "Forbidden"
    assert {key: value for key, value in bench.status().items() if key != "conditions"} == {
        key: value for key, value in before.items() if key != "conditions"
    }
    assert len(bench.pods()) == 2


@pytest.mark.parametrize("error", [ServerError(503, "", "away"), Conflict(409, "Conflict", "changed")])
async def test_a_temporary_error_ends_the_pass(bench: Bench, error: Exception) -> None:
    bench.cluster.fail("apply", "Deployment", error)
    with pytest.raises(type(error)):
        await bench.run_pass()
    await bench.settle()
    assert bench.reasons()["Ready"] == "AllReady"


async def test_an_event_that_is_not_taken_does_not_repeat_the_pass(bench: Bench) -> None:
    bench.cluster.fail("create", "Event", ServerError(500, "", "no"), FORBIDDEN)
    await bench.settle()
    assert bench.reasons()["Ready"] == "AllReady"


async def test_without_the_lease_nothing_is_written(bench: Bench) -> None:
    bench.leads = False
    with pytest.raises(NotLeading):
        await bench.run_pass()
    assert bench.cluster.writes == []


async def test_load_reaches_the_status(bench: Bench) -> None:
    await bench.settle()
    bench.loads.load = PoolLoad(61, 1200)
    assert await bench.run_pass() == [("status", "TokenPool", "chat")]
    assert (bench.status()["utilization"], bench.status()["tokensPerSecond"]) == (61, 1200)
    bench.loads.load = NOTHING_KNOWN
    await bench.run_pass()
    assert "utilization" not in bench.status()


async def test_wherever_a_pass_is_cut_the_end_is_the_same(settings: Settings, pool_of: Any, fake_cluster: Any) -> None:
    """Stop after the k-th write for every k; a new operator must reach the undisturbed end."""
    kind_of_cluster = type(fake_cluster)

    class Stopped(Exception):
        pass

    async def run(stop_after: int | None) -> tuple[list[Any], int]:
        cluster = kind_of_cluster()
        cluster.put(pool_of())
        bench = Bench(cluster, settings)
        allowed = [stop_after]

        def may_write() -> bool:
            if allowed[0] is not None:
                if allowed[0] == 0:
                    allowed[0] = None
                    raise Stopped
                allowed[0] -= 1
            return True

        bench.reconciler = Reconciler(Door(cluster, Metrics(), may_write), settings, bench.loads, lambda: bench.now)
        total = 0
        for round_number in range(60):
            if round_number == 8:
                bench.edit(image="engine:2", shards={"min": 3})
            try:
                wrote = await bench.run_pass()
            except Stopped:
                wrote = list(cluster.writes)
            total += len(wrote)
            bench.play_controllers()
        return [(key, item.get("spec")) for key, item in sorted(cluster.objects.items()) if key[0] != "Event"], total

    undisturbed, writes = await run(None)
    assert len([key for key, _ in undisturbed if key[0] == "Pod"]) == 3
    for k in range(writes):
        ended, _ = await run(k)
        assert ended == undisturbed, f"stopped after write {k}"
