"""Passes in this process against the real API server, cut after the k-th write, for every k."""

import asyncio
import time
from typing import Any

import pytest

from support.kubelet import Kubelet
from support.pools import Pool
from support.settle import assert_becomes
from tokenpool_kube import Cluster, ClusterError, kinds
from tokenpool_operator.cluster import Door
from tokenpool_operator.metrics import Metrics
from tokenpool_operator.reconcile import Reconciler
from tokenpool_operator.settings import Settings
from tokenpool_operator.utilization import NOTHING_KNOWN, PoolLoad

SETTINGS = Settings(engine_image="engine:1", router_image="router:1", replace_seconds=0.5)


class Cut(Exception):
    """The operator died here."""


class NoLoads:
    def track(self, key: tuple[str, str], addresses: tuple[str, ...]) -> PoolLoad:
        return NOTHING_KNOWN

    def forget(self, key: tuple[str, str]) -> None:
        return None


class Writes:
    """Counts writes and cuts once, before the one after the `allowed`-th."""

    def __init__(self, allowed: int | None = None) -> None:
        self.done = 0
        self.allowed = allowed

    def __call__(self) -> bool:
        if self.allowed is not None and self.done == self.allowed:
            self.allowed = None
            raise Cut
        self.done += 1
        return True


async def drive(pool: Pool, writes: Writes, shards: int) -> None:
    """Passes until the pool is ready and a pass writes nothing."""
    reconciler = Reconciler(Door(pool.api, Metrics(), writes), SETTINGS, NoLoads(), time.time)
    for _ in range(300):
        before = writes.done
        try:
            await reconciler.run_pass((pool.namespace, pool.name))
        except (Cut, ClusterError):
            continue
        conditions = await pool.conditions()
        if writes.done == before and conditions["Ready"] == "+AllReady" and conditions["Progressing"] == "-Settled":
            assert len(await pool.shards()) == shards
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{pool.name} does not settle: {await pool.status()}")


async def life(pool: Pool, cut_after: int | None) -> tuple[list[Any], int]:
    """Create, then a rollout and a scale-up in one edit. Returns the end and the number of writes."""
    writes = Writes(cut_after)
    await pool.apply()
    await drive(pool, writes, 2)
    await pool.apply(shards={"min": 3}, image="engine:2")
    await drive(pool, writes, 3)
    return await pool.normalised(), writes.done


async def test_cut_after_any_write_it_ends_the_same(api: Cluster, namespace: str, crd: str, kubelet: Kubelet) -> None:
    wanted, writes = await life(Pool(api, namespace, "whole"), None)
    assert len([kind for kind, _, _ in wanted if kind == "Pod"]) == 3
    ends = await asyncio.gather(*(life(Pool(api, namespace, f"cut{k}"), k) for k in range(writes)))
    for k, (end, _) in enumerate(ends):
        assert end == wanted, f"cut after write {k}"
    # Deterministic names: whatever was cut, no shard is made twice.
    pods = (await api.list(kinds.POD, namespace, labels="app.kubernetes.io/component=shard")).items
    assert len(pods) == 3 * (writes + 1)


@pytest.mark.parametrize("source", ["hf://org/name", "pvc://claim/path", "file:///model", "oci://registry/model:1"])
async def test_every_model_source_makes_pods_that_the_strictest_namespace_admits(
    api: Cluster, namespace: str, crd: str, source: str
) -> None:
    pool = Pool(api, namespace)
    shards = {
        "min": 1,
        "resources": {"limits": {"cpu": "1500m", "nvidia.com/gpu": 1}},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    await pool.apply(model={"source": source}, shards=shards, router={"resources": {"limits": {"cpu": "1500m"}}})
    writes = Writes()
    reconciler = Reconciler(Door(api, Metrics(), writes), SETTINGS, NoLoads(), time.time)
    await reconciler.run_pass((namespace, "chat"))
    assert await pool.ordinals() == ["0"]
    assert (await pool.conditions())["Degraded"] == "-AsExpected"

    async def is_quiet() -> bool:
        before = writes.done
        await reconciler.run_pass((namespace, "chat"))
        return writes.done == before

    # What the server adds to the objects, and how it writes quantities, must not look like drift.
    await assert_becomes(is_quiet, within_seconds=10)
