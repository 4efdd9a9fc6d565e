"""The contract as the real API server enforces it: for each rule a good object, a bad one, and what a user sees."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.raw_pools import Session, model, pool, shards
from tokenpool_api import crd as contract

Raw = dict[str, Any]
TOKEN = {"name": "hub", "key": "token"}
CASES: dict[str, tuple[Raw, Raw, str]] = {
    "min above max": (
        shards(min=2, max=2),
        shards(min=3, max=2),
        "spec.shards: Invalid value: shards.min must not be greater than shards.max",
    ),
    "unknown scheme": (
        model("pvc://claim/path"),
        model("s3://bucket/model"),
        'spec.model.source: Invalid value: "s3://bucket/model": model.source must be hf://org/name, pvc://claim/path, '
        "file:///path/in/image or oci://image; free URLs are not fetched",
    ),
    "free URL": (model("file:///models/a"), model("https://example.com/a"), "free URLs are not fetched"),
    "hub name": (model("hf://org/name-1.0"), model("hf://org"), "model.source with hf:// must be hf://org/name"),
    "hub name with commit": (
        model("hf://a/b", revision="main"),
        model("hf://a/b@main"),
        "give the commit in model.revision",
    ),
    "dots": (model("pvc://claim/a/b"), model("pvc://claim/../b"), "model.source must not contain '..'"),
    "token without hub": (
        model("hf://a/b", credentialsSecret=TOKEN),
        model("pvc://claim/a", credentialsSecret=TOKEN),
        "spec.model: Invalid value: model.credentialsSecret is used only with an hf:// source; remove it",
    ),
    "revision without hub": (
        model("hf://a/b", revision="0123abc"),
        model("pvc://claim/a", revision="0123abc"),
        "model.revision is used only with an hf:// source; remove it",
    ),
    "length above cache": (
        shards(maxModelLength=100, kvCacheTokens=100),
        shards(maxModelLength=101, kvCacheTokens=100),
        "shards.maxModelLength must not be greater than shards.kvCacheTokens: one request has to fit",
    ),
    "fewer GPUs than ranks": (
        shards(tensorParallel=2, resources={"limits": {"nvidia.com/gpu": 2}}),
        shards(tensorParallel=2, resources={"limits": {"nvidia.com/gpu": 1}}),
        "spec.shards: Invalid value: shards.tensorParallel must be the number of nvidia.com/gpu in "
        "shards.resources.limits: each rank has one",
    ),
    "more GPUs than ranks": (
        shards(resources={"limits": {"nvidia.com/gpu": "1"}}),
        shards(resources={"limits": {"nvidia.com/gpu": "2"}}),
        "shards.tensorParallel must be the number of nvidia.com/gpu",
    ),
    "ranks without GPUs": (
        shards(tensorParallel=16, resources={"limits": {"memory": "4Gi", "nvidia.com/gpu": 0}}),
        shards(tensorParallel=17),
        "spec.shards.tensorParallel: Invalid value: 17",
    ),
    "grace below drain": (
        pool(rollout={"drainSeconds": 60, "terminationGraceSeconds": 75}),
        pool(rollout={"drainSeconds": 60, "terminationGraceSeconds": 74}),
        "rollout.terminationGraceSeconds must be at least rollout.drainSeconds + 15; leave it out to have it computed",
    ),
    "negative min": (shards(min=0), shards(min=-1), "spec.shards.min: Invalid value: -1"),
    "too many": (shards(max=1000), shards(max=1001), "spec.shards.max: Invalid value: 1001"),
    "dtype": (shards(dtype="bfloat16"), shards(dtype="int3"), 'spec.shards.dtype: Unsupported value: "int3"'),
    "matmul precision": (
        shards(performance={"matmulPrecision": "medium", "cudaGraphs": False}),
        shards(performance={"matmulPrecision": "low"}),
        'spec.shards.performance.matmulPrecision: Unsupported value: "low"',
    ),
    "tiny budget": (shards(tokenBudget=16), shards(tokenBudget=1), "spec.shards.tokenBudget: Invalid value: 1"),
    "quantity": (
        shards(resources={"limits": {"memory": "4Gi", "nvidia.com/gpu": 1}}),
        shards(resources={"limits": {"memory": "4" * 40}}),
        "spec.shards.resources.limits.memory: Too long",
    ),
    "no quantity": (
        shards(resources={"requests": {"cpu": "500m", "memory": "1.5Gi"}}),
        shards(resources={"requests": {"memory": "4GiB"}}),
        'spec.shards.resources.requests[memory]: Invalid value: "4GiB": must be a Kubernetes quantity',
    ),
    "less than nothing": (
        pool(router={"resources": {"limits": {"cpu": 0}}}),
        pool(router={"resources": {"limits": {"cpu": -1}}}),
        "must be a Kubernetes quantity that is not negative, such as 2, 500m or 4Gi",
    ),
    "claim in capitals": (
        model("pvc://models.v1-a/Llama_3"),
        model("pvc://Models/a"),
        "model.source with pvc:// must be pvc://claim/path, the claim being a name that Kubernetes allows",
    ),
    "claim with two dashes": (model("pvc://a--b"), model("pvc://a-/b"), "model.source with pvc:// must be"),
    "Secret with dots": (
        model("hf://a/b", credentialsSecret={"name": "hub.token", "key": "t"}),
        model("hf://a/b", credentialsSecret={"name": "hub..token", "key": "t"}),
        "spec.model.credentialsSecret.name: Invalid value",
    ),
    "toleration": (
        shards(tolerations=[{"key": "a", "operator": "Exists"}]),
        shards(tolerations=[{"key": "a", "operator": "Is"}]),
        'spec.shards.tolerations[0].operator: Unsupported value: "Is"',
    ),
    "no model": (pool(), {**pool(), "spec": {}}, "spec.model: Required value"),
    "router replicas": (
        pool(router={"replicas": 2}),
        pool(router={"replicas": 0}),
        "spec.router.replicas: Invalid value: 0",
    ),
    "unknown field": (shards(min=1), shards(minn=1), 'unknown field "spec.shards.minn"'),
    "long name": (
        pool("a" * 40),
        pool("a" * 41),
        "metadata.name must be a DNS label of at most 40 characters that begins with a letter",
    ),
    "name with dot": (pool("a-b"), pool("a.b"), "metadata.name must be a DNS label"),
    "name in capitals": (pool("ab"), pool("Ab"), "a lowercase RFC 1123 subdomain"),
    "unknown field at the top": (pool(), {**pool(), "sepc": {}}, 'unknown field "sepc"'),
    "pull policy": (
        pool(imagePullPolicy="Never"),
        pool(imagePullPolicy="Sometimes"),
        'spec.imagePullPolicy: Unsupported value: "Sometimes"',
    ),
    "text for a number": (shards(min=2), shards(min="2"), "spec.shards.min: Invalid value"),
    "no secret key": (
        model("hf://a/b", credentialsSecret=TOKEN),
        model("hf://a/b", credentialsSecret={"name": "hub"}),
        "spec.model.credentialsSecret.key: Required value",
    ),
    "name with digit first": (pool("a1"), pool("1a"), "metadata.name must be a DNS label"),
}


def messages(node: Any) -> Iterator[str]:
    """What the CEL rules below a node say, those of one state and not of a change."""
    if isinstance(node, list):
        for child in node:
            yield from messages(child)
    elif isinstance(node, dict):
        rules = node.get("x-kubernetes-validations", [])
        yield from (rule["message"] for rule in rules if "oldSelf" not in rule["rule"])
        for child in node.values():
            yield from messages(child)


@pytest.mark.parametrize("message", sorted(set(messages(contract.open_api()))))
def test_each_message_has_its_case(message: str) -> None:
    assert any(words in message or message in words for _, _, words in CASES.values())


@pytest.mark.parametrize(("good", "bad", "words"), CASES.values(), ids=list(CASES))
async def test_rule(session: Session, good: Raw, bad: Raw, words: str) -> None:
    status, answer = await session.send("POST", body=bad)
    assert status in (400, 422)
    assert words in answer["message"]
    status, answer = await session.send("POST", body=good)
    assert status == 201, answer


@pytest.mark.parametrize(
    ("before", "patch"),
    [("one", "two"), ("one", None), (None, "two")],
    ids=["change", "remove", "add"],
)
async def test_the_served_name_stays(session: Session, before: str | None, patch: str | None) -> None:
    body = model("hf://a/b", servedName=before) if before else model("hf://a/b")
    assert (await session.send("POST", body=body))[0] == 201
    status, answer = await session.send("PATCH", "/pool", {"spec": {"model": {"servedName": patch}}})
    assert status == 422
    assert "model.servedName is immutable" in answer["message"]
    assert (await session.send("PATCH", "/pool", {"spec": {"model": {"source": "hf://a/c"}}}))[0] == 200
