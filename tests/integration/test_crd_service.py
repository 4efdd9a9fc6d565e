"""What the API server does with a TokenPool that is valid: defaults, scale, status, table, changes of the contract."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from support.raw_pools import Session, pool, shards
from support.settle import assert_becomes
from tokenpool_api import crd as contract
from tokenpool_api import names
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_kube import Cluster, Invalid, kinds

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


async def test_defaults_are_filled_by_the_server(session: Session) -> None:
    _, answer = await session.send("POST", body=pool())
    assert answer["spec"] == {
        "model": {"source": "hf://org/name"},
        "imagePullPolicy": "IfNotPresent",
        "shards": {
            "min": 1,
            "max": 1000,
            "maxSequences": 64,
            "dtype": "auto",
            "tensorParallel": 1,
            "performance": {"cudnnBenchmark": False, "cudaGraphs": True},
        },
        "rollout": {"drainSeconds": 120},
        "router": {
            "replicas": 1,
            "workers": 1,
            "policy": "LeastTokens",
            "queue": {"maxTokens": 262144, "timeoutSeconds": 30},
        },
        "paused": False,
    }
    parsed = TokenPoolSpec.model_validate(pool()["spec"])
    assert parsed.model_dump(by_alias=True, exclude_none=True, mode="json") == answer["spec"]


async def test_scale_sets_the_floor_and_is_bounded_by_max(session: Session, api: Cluster, namespace: str) -> None:
    await session.send("POST", body=shards(min=1, max=3))
    stored = await api.get(kinds.TOKENPOOL, namespace, "pool")
    assert stored
    status_body = {"shards": {"current": 2}, "selector": "tokenpool.dev/pool=pool"}
    await api.replace_status(kinds.TOKENPOOL, namespace, "pool", {**stored, "status": status_body})
    _, scale = await session.send("GET", "/pool/scale")
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 1},
        {"replicas": 2, "selector": "tokenpool.dev/pool=pool"},
    )
    assert (await session.send("PUT", "/pool/scale", {**scale, "spec": {"replicas": 3}}))[0] == 200
    _, changed = await session.send("GET", "/pool")
    assert changed["spec"]["shards"]["min"] == 3
    _, scale = await session.send("GET", "/pool/scale")
    status, answer = await session.send("PUT", "/pool/scale", {**scale, "spec": {"replicas": 4}})
    assert status == 422
    assert "shards.min must not be greater than shards.max" in answer["message"]
    assert (await session.send("PUT", "/pool/scale", {**scale, "spec": {"replicas": -1}}))[0] == 422
    assert (await session.send("PUT", "/pool/scale", {**scale, "spec": {"replicas": 0}}))[0] == 200


async def test_status_and_spec_are_written_apart(session: Session, api: Cluster, namespace: str) -> None:
    await session.send("POST", body={**pool(), "status": {"readySummary": "9/9"}})
    _, stored = await session.send("GET", "/pool")
    assert "status" not in stored
    changed = {**stored, "spec": {**stored["spec"], "paused": True}, "status": {"readySummary": "0/1"}}
    written = await api.replace_status(kinds.TOKENPOOL, namespace, "pool", changed)
    assert (written["spec"]["paused"], written["status"]["readySummary"]) == (False, "0/1")
    bad = {"conditions": [{"type": "Ready", "status": "Perhaps"}]}
    with pytest.raises(Invalid, match=r"status\.conditions"):
        await api.replace_status(kinds.TOKENPOOL, namespace, "pool", {**written, "status": bad})


async def test_the_table_tells_the_truth_in_one_line(session: Session, api: Cluster, namespace: str) -> None:
    await session.send("POST", body=pool())
    stored = await api.get(kinds.TOKENPOOL, namespace, "pool")
    assert stored
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "ShardsNotReady",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    body = {"conditions": [condition], "readySummary": "1/2", "utilization": 73, "revision": {"current": "abcd1234"}}
    await api.replace_status(kinds.TOKENPOOL, namespace, "pool", {**stored, "status": body})
    _, table = await session.send("GET", accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert [name for name, priority in columns if priority == 0] == [
        "Name", "Ready", "Shards", "Utilization", "Model", "Revision", "Age",
    ]  # fmt: skip
    row = dict(zip((name for name, _ in columns), table["rows"][0]["cells"], strict=True))
    assert [row[name] for name in ("Name", "Ready", "Shards", "Utilization", "Model", "Revision", "Reason")] == [
        "pool", "False", "1/2", 73, "hf://org/name", "abcd1234", "ShardsNotReady",
    ]  # fmt: skip


async def test_names_and_categories(api: Cluster, crd: str) -> None:
    stored = await api.get(kinds.CUSTOM_RESOURCE_DEFINITION, None, crd)
    assert stored
    accepted = stored["status"]["acceptedNames"]
    assert (accepted["shortNames"], accepted["categories"]) == (["tp"], ["all", "tokenpool"])
    problems = [
        c for c in stored["status"]["conditions"] if c["type"] == "NonStructuralSchema" and c["status"] == "True"
    ]
    assert problems == []


@pytest.fixture
async def looser(api: Cluster, crd: str, session: Session) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """The contract as if an older version had allowed more shards. Call it to have the real one back."""

    async def become(maximum: int) -> None:
        body = contract.definition()
        spec = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["shards"]["properties"]["max"]["maximum"] = maximum
        await api.apply(kinds.CUSTOM_RESOURCE_DEFINITION, None, crd, body, manager="test")

        async def is_in_force() -> bool:
            statuses = [(await session.send("POST", body=shards(max=n), dryRun="All"))[0] for n in (2000, 3000)]
            return statuses == [201 if maximum >= n else 422 for n in (2000, 3000)]

        await assert_becomes(is_in_force)

    await become(2000)
    yield lambda: become(names.MAX_SHARDS)
    await become(names.MAX_SHARDS)


async def test_a_pool_from_before_a_rule_can_still_be_changed(
    session: Session, api: Cluster, namespace: str, looser: Callable[[], Awaitable[None]]
) -> None:
    assert (await session.send("POST", body=shards(max=2000)))[0] == 201
    await looser()
    assert (await session.send("PATCH", "/pool", {"spec": {"shards": {"min": 2}, "paused": True}}))[0] == 200
    stored = await api.get(kinds.TOKENPOOL, namespace, "pool")
    assert stored
    written = await api.replace_status(
        kinds.TOKENPOOL, namespace, "pool", {**stored, "status": {"readySummary": "0/2"}}
    )
    assert written["status"]["readySummary"] == "0/2"
    status, answer = await session.send("PATCH", "/pool", {"spec": {"shards": {"max": 1999}}})
    assert status == 422
    assert "spec.shards.max" in answer["message"]


@pytest.mark.parametrize("example", [file.read_text() for file in EXAMPLES], ids=[file.name for file in EXAMPLES])
async def test_examples_are_taken(session: Session, example: str) -> None:
    assert (await session.send("POST", body=yaml.safe_load(example)))[0] == 201
