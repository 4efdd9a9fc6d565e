"""The operator behind a proxy that misbehaves: lost replies, kills after any write, lost events, rivals, refusals."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.fault_proxy import FaultProxy
from support.faults import Answer, LoseReply
from support.kubelet import Kubelet
from support.operator_process import LEASE_SECONDS, OperatorProcess
from support.pools import Pool
from support.settle import assert_becomes, assert_settles
from tokenpool_kube import Cluster, Conflict, kinds

Raw = dict[str, Any]
CRD_FILE = Path(__file__).parents[2] / "crds" / "tokenpool.yaml"
NewOperator = Callable[..., OperatorProcess]


@pytest.fixture
async def new_operator(
    proxied_kubeconfig: Path, namespace: str, crd: str, tmp_path: Path
) -> AsyncIterator[NewOperator]:
    """Replicas that see only this test's namespace, through the proxy."""
    made: list[OperatorProcess] = []

    def make(identity: str = "operator-1", **environment: str) -> OperatorProcess:
        operator = OperatorProcess(
            proxied_kubeconfig, tmp_path / f"{identity}.log", namespace, namespace, identity, environment
        )
        made.append(operator)
        operator.start()
        return operator

    yield make
    for operator in made:
        operator.kill()


@pytest.fixture
def pool(api: Cluster, namespace: str, crd: str, kubelet: Kubelet) -> Pool:
    return Pool(api, namespace)


def work(proxy: FaultProxy) -> list[str]:
    """Writes that were taken, but for the lease's heartbeat."""
    writes = [write for write in proxy.writes if write.status < 400 and write.call.resource != "leases"]
    return [f"{write.call.verb} {write.call.resource}" for write in writes]


async def test_lost_replies_make_no_duplicates(pool: Pool, proxy: FaultProxy, new_operator: NewOperator) -> None:
    for resource in ("pods", "services", "deployments", "tokenpools/status", "events"):
        proxy.inject(
            LoseReply(), verb=None, resource=resource, path=r"/(pods|services|status|events|deployments)(/[^/]+)?$"
        )
    await pool.apply()
    new_operator()
    await assert_settles(pool.api, pool.namespace, pool.is_ready(2), quiet_seconds=1.0)
    assert work(proxy).count("create pods") == 2


async def test_an_idle_pool_causes_no_writes(pool: Pool, proxy: FaultProxy, new_operator: NewOperator) -> None:
    await pool.apply()
    new_operator(TOKENPOOL_RESYNC_SECONDS="0.5")
    await assert_becomes(pool.is_ready(2))
    reads = len(proxy.calls)
    await assert_settles(
        pool.api, pool.namespace, pool.is_ready(2), quiet_seconds=3.0, count_writes=lambda: len(work(proxy))
    )
    # It did look: at least three passes of nine reads.
    assert len(proxy.calls) - reads > 27


async def test_killed_after_any_write_it_ends_the_same(
    pool: Pool, proxy: FaultProxy, new_operator: NewOperator
) -> None:
    await pool.apply()
    operator = new_operator()
    await assert_becomes(pool.is_ready(2))
    wanted = await pool.normalised()
    for number, count in enumerate((1, 11, 13)):
        killed = Pool(pool.api, pool.namespace, f"killed{number}")
        dead = asyncio.Event()

        def kill(dead: asyncio.Event = dead) -> None:
            operator.kill()
            dead.set()

        # The lease is renewed about every half second too, so the count is where it roughly falls.
        proxy.after_write(count, kill)
        await killed.apply()
        await asyncio.wait_for(dead.wait(), 20)
        operator.start()
        await assert_becomes(killed.is_ready(2))
        assert await killed.normalised() == wanted
    assert work(proxy).count("create pods") == 8


async def test_lost_events_are_made_up_for(pool: Pool, proxy: FaultProxy, new_operator: NewOperator) -> None:
    await pool.apply()
    new_operator(TOKENPOOL_RESYNC_SECONDS="2")
    await assert_becomes(pool.is_ready(2))
    proxy.drops_event = lambda call, _event: call.resource == "pods"
    victim = (await pool.shards())[0]["metadata"]
    await pool.api.delete(kinds.POD, pool.namespace, victim["name"], uid=victim["uid"])

    async def healed() -> bool:
        uids = [pod["metadata"]["uid"] for pod in await pool.shards()]
        return victim["uid"] not in uids and await pool.is_ready(2)()

    await assert_becomes(healed)


@pytest.mark.parametrize("status", [401, 403, 429, 503])
async def test_a_bad_spell_of_the_api_server_passes(
    pool: Pool, proxy: FaultProxy, new_operator: NewOperator, status: int
) -> None:
    operator = new_operator()
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    async with operator.kept_running():
        proxy.inject(Answer(status), times=5, path="/(pods|tokenpools|services)")
        proxy.cut_watches()
        await pool.apply(shards={"min": 3})
        await assert_becomes(pool.is_ready(3))
    # kopf may end when a login and a cut come together; then the restart makes up for it.
    assert operator.starts <= (2 if status == 401 else 1)
    assert work(proxy).count("create pods") == 3


async def test_expired_watches_are_listed_anew(pool: Pool, proxy: FaultProxy, new_operator: NewOperator) -> None:
    operator = new_operator()
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    await proxy.expire_watches()
    victim = (await pool.shards())[0]["metadata"]
    await pool.api.delete(kinds.POD, pool.namespace, victim["name"], uid=victim["uid"])
    await assert_becomes(pool.is_ready(2), within_seconds=10)
    await pool.apply(shards={"min": 3})
    await assert_becomes(pool.is_ready(3), within_seconds=10)
    assert operator.is_running()


async def test_of_two_replicas_one_works_and_the_other_takes_over(
    pool: Pool, proxy: FaultProxy, new_operator: NewOperator
) -> None:
    first = new_operator("operator-1")
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    second = new_operator("operator-2")
    await pool.apply(shards={"min": 3})
    await assert_becomes(pool.is_ready(3))
    assert "leads" not in second.log()
    first.kill()
    await pool.apply(shards={"min": 1})
    await assert_becomes(pool.is_ready(1), within_seconds=LEASE_SECONDS + 15)
    assert "operator-2 leads" in second.log()
    assert await second.stop() == 0
    lease = await pool.api.get(kinds.LEASE, pool.namespace, "tokenpool-operator")
    assert lease is not None
    assert lease["spec"].get("holderIdentity", "") == ""


async def test_a_lost_lease_ends_the_process(pool: Pool, new_operator: NewOperator) -> None:
    operator = new_operator()
    await pool.apply()
    await assert_becomes(pool.is_ready(2))

    async def rival_takes_it() -> bool:
        lease = await pool.api.get(kinds.LEASE, pool.namespace, "tokenpool-operator")
        assert lease is not None
        taken = lease | {"spec": lease["spec"] | {"holderIdentity": "rival"}}
        with contextlib.suppress(Conflict):
            await pool.api.replace(kinds.LEASE, pool.namespace, "tokenpool-operator", taken)
            return True
        return False

    await assert_becomes(rival_takes_it)
    assert await operator.exit_code() == 3


async def test_without_the_crd_it_says_so_and_ends(proxy: FaultProxy, new_operator: NewOperator) -> None:
    proxy.inject(Answer(404), path="/tokenpools$", times=None)
    operator = new_operator()
    assert await operator.exit_code() == 2
    assert "CustomResourceDefinition tokenpools.tokenpool.dev is not installed" in operator.log()
    assert "Traceback" not in operator.log()


async def test_a_spec_stored_under_another_schema_tears_nothing_down(
    pool: Pool, new_operator: NewOperator, crd: str
) -> None:
    await pool.apply()
    operator = new_operator()
    await assert_becomes(pool.is_ready(2))
    before = await pool.normalised()
    strict = yaml.safe_load(CRD_FILE.read_text())
    lenient = yaml.safe_load(CRD_FILE.read_text())
    (version,) = lenient["spec"]["versions"]
    shards = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shards"]
    shards["properties"]["maxSequences"]["maximum"] = 100_000
    definition = kinds.CUSTOM_RESOURCE_DEFINITION
    await pool.api.apply(definition, None, crd, lenient, manager="test")
    await assert_becomes(lambda: _is_taken(pool, shards={"min": 0, "maxSequences": 5000}))
    await pool.api.apply(definition, None, crd, strict, manager="test")
    await assert_becomes(pool.has(Ready="-InvalidSpec", Available="+Serving", Degraded="+InvalidSpec"))
    message = (await pool.status())["conditions"][0]["message"]
    assert message == "spec.shards.maxSequences: Input should be less than or equal to 4096"
    operator.kill()
    operator.start()
    await assert_settles(pool.api, pool.namespace, pool.has(Ready="-InvalidSpec"), quiet_seconds=2.0)
    assert await pool.normalised() == before
    await pool.apply(shards={"min": 1})
    await assert_becomes(pool.is_ready(1))


async def _is_taken(pool: Pool, **spec: Any) -> bool:
    """A changed CRD is obeyed a moment later."""
    try:
        await pool.apply(**spec)
    except Exception as error:
        raise AssertionError(str(error)) from error
    return True


async def test_a_pool_deleted_while_the_operator_is_away_leaves_nothing(pool: Pool, new_operator: NewOperator) -> None:
    await pool.apply()
    operator = new_operator()
    await assert_becomes(pool.is_ready(2))
    assert await operator.stop() == 0
    await pool.delete()

    async def is_empty() -> bool:
        return await pool.children() == [] and await pool.api.get(kinds.TOKENPOOL, pool.namespace, "chat") is None

    await assert_becomes(is_empty)
    operator.start()
    await asyncio.sleep(2.0)
    assert await is_empty()
