"""The contract as the real API server enforces it: for each rule a good object, a bad one, and what a user sees."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from cluster.controlplane import ControlPlane
from tokenpool_api import names
from tokenpool_kube import Cluster, Invalid, kinds

Raw = dict[str, Any]
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def pool(name: str = "pool", **spec: Any) -> Raw:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"model": {"source": "hf://org/name"}, **spec},
    }


def model(source: str, **fields: Any) -> Raw:
    return pool(model={"source": source, **fields})


def shards(**fields: Any) -> Raw:
    return pool(shards=fields)


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
    "grace below drain": (
        pool(rollout={"drainSeconds": 60, "terminationGraceSeconds": 75}),
        pool(rollout={"drainSeconds": 60, "terminationGraceSeconds": 74}),
        "rollout.terminationGraceSeconds must be at least rollout.drainSeconds + 15; leave it out to have it computed",
    ),
    "negative min": (shards(min=0), shards(min=-1), "spec.shards.min: Invalid value: -1"),
    "too many": (shards(max=1000), shards(max=1001), "spec.shards.max: Invalid value: 1001"),
    "dtype": (shards(dtype="bfloat16"), shards(dtype="int3"), 'spec.shards.dtype: Unsupported value: "int3"'),
    "tiny budget": (shards(tokenBudget=16), shards(tokenBudget=1), "spec.shards.tokenBudget: Invalid value: 1"),
    "quantity": (
        shards(resources={"limits": {"memory": "4Gi", "nvidia.com/gpu": 1}}),
        shards(resources={"limits": {"memory": "4" * 40}}),
        "spec.shards.resources.limits.memory: Too long",
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
    "name with digit first": (pool("a1"), pool("1a"), "metadata.name must be a DNS label"),
}


class Session:
    """Raw requests: what kubectl would send."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._url, self._token = control_plane.url, control_plane.token
        self._path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"

    async def send(self, method: str, name: str = "", body: Raw | None = None, **headers: str) -> tuple[int, Raw]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        all_headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, **headers}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http,
            http.request(
                method,
                f"{self._url}{self._path}{name}",
                json=body,
                headers=all_headers,
                params={"fieldValidation": "Strict"},
            ) as answer,
        ):
            return answer.status, await answer.json()


@pytest.fixture
def session(control_plane: ControlPlane, namespace: str, crd: str) -> Session:
    return Session(control_plane, namespace)


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


async def test_defaults_are_filled_by_the_server(session: Session) -> None:
    _, answer = await session.send("POST", body=pool())
    assert answer["spec"] == {
        "model": {"source": "hf://org/name"},
        "imagePullPolicy": "IfNotPresent",
        "shards": {"min": 1, "max": 1000, "maxSequences": 64, "dtype": "auto"},
        "rollout": {"drainSeconds": 120},
        "router": {"replicas": 1, "queue": {"maxTokens": 262144, "timeoutSeconds": 30}},
        "paused": False,
    }


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
    _, table = await session.send("GET", Accept="application/json;as=Table;g=meta.k8s.io;v=v1")
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


@pytest.mark.parametrize("example", [file.read_text() for file in EXAMPLES], ids=[file.name for file in EXAMPLES])
async def test_examples_are_taken(session: Session, example: str) -> None:
    assert (await session.send("POST", body=yaml.safe_load(example)))[0] == 201
