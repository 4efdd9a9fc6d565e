"""Every bound of the contract as the real API server enforces it. The cases are read from the schema, so that a new
field is tried the day it is added: a value at each bound is taken, one beyond it is refused by the field's path.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tokenpool_api import names
from tokenpool_api.schema import structural
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_api.status import TokenPoolStatus
from tokenpool_kube import Cluster, Invalid, kinds

Raw = dict[str, Any]
Path = tuple[str | int, ...]

# Every field once, so chosen that any one of them may go to either bound without breaking a rule between two.
SPEC: Raw = {
    "model": {
        "source": "hf://a/b",
        "revision": "main",
        "servedName": "b",
        "credentialsSecret": {"name": "hub", "key": "token"},
    },
    "image": "engine:1",
    "imagePullPolicy": "Always",
    "shards": {
        "min": 1,
        "max": 1000,
        "tokenBudget": 512,
        "maxSequences": 8,
        "maxModelLength": 16,
        "kvCacheTokens": 1_000_000_000,
        "dtype": "auto",
        "quantization": "int8",
        "threads": 1,
        "tensorParallel": 1,
        "performance": {"matmulPrecision": "high", "cudnnBenchmark": False, "cudaGraphs": True},
        "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}},
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 1}],
        "priorityClassName": "high",
    },
    "rollout": {"drainSeconds": 0, "terminationGraceSeconds": 90_000},
    "router": {
        "replicas": 1,
        "workers": 1,
        "policy": "PowerOfTwo",
        "queue": {"maxTokens": 1, "timeoutSeconds": 1},
        "apiKeysSecret": {"name": "keys"},
        "redis": {"secretRef": {"name": "redis", "key": "url"}},
        "tls": {"secretRef": {"name": "tls"}},
        "cors": {"allowedOrigins": ["*"]},
        "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}},
    },
    "paused": False,
}
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "AllReady",
    "message": "m",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}
SHARD = {"name": "pool-0", "node": "n", "revision": "r", "state": "Ready", "message": "m"}
STATUS: Raw = {
    "observedGeneration": 1,
    "selector": "a=b",
    "conditions": [CONDITION],
    "shards": dict.fromkeys(("desired", "current", "ready", "pending", "draining", "updated"), 1),
    "readySummary": "1/1",
    "utilization": 1,
    "tokensPerSecond": 1,
    "revision": dict.fromkeys(("current", "updating", "model", "image"), "a"),
    "shardDetails": [SHARD],
}
# Less than 15 seconds of grace are refused by the rule that asks for drainSeconds + 15.
UNREACHABLE: set[tuple[Path, Any]] = {(("rollout", "terminationGraceSeconds"), 1)}


def fields(node: Raw, sample: Any, path: Path = ()) -> Iterator[tuple[Path, Raw, Any]]:
    """Path, schema and sample of the node and of all below it."""
    yield path, node, sample
    for name, child in node.get("properties", {}).items():
        yield from fields(child, sample[name], (*path, name))
    if "items" in node:
        yield from fields(node["items"], sample[0], (*path, 0))
    if "additionalProperties" in node:
        [name] = sample
        yield from fields(node["additionalProperties"], sample[name], (*path, name))


def beyond(node: Raw, sample: Any) -> Iterator[tuple[str, Any]]:
    """For each bound of one node: a value that breaks this bound and no other, and what the server says of it."""
    if "minimum" in node:
        yield f"should be greater than or equal to {node['minimum']}", node["minimum"] - 1
    if "maximum" in node:
        yield f"should be less than or equal to {node['maximum']}", node["maximum"] + 1
    if node.get("minLength"):
        yield f"should be at least {node['minLength']} chars long", ""
    if "maxLength" in node:
        letter = "1" if "x-kubernetes-int-or-string" in node else "a"
        yield "Too long", letter * (node["maxLength"] + 1)
    if "pattern" in node:
        yield "should match", "!"
    if "enum" in node:
        yield "Unsupported value", "Nonsense"
    if node.get("format") == "date-time":
        yield "must be of type date-time", "yesterday"
    if "maxItems" in node:
        yield "Too many", [sample[0]] * (node["maxItems"] + 1)
    if "maxProperties" in node:
        yield "Too many", {f"key{number}": "1" for number in range(node["maxProperties"] + 1)}
    for name in node.get("required", []):
        yield f"{name}: Required value", {key: value for key, value in sample.items() if key != name}


def at_bounds(node: Raw) -> Iterator[Any]:
    """The outermost values that are right."""
    yield from (node[key] for key in ("minimum", "maximum") if key in node)
    yield from node.get("enum", [])


def put(whole: Raw, path: Path, value: Any) -> Raw:
    """A copy with another value at the path."""
    if not path:
        return value if isinstance(value, dict) else whole
    changed: Any = copy.deepcopy(whole)
    spot = changed
    for step in path[:-1]:
        spot = spot[step]
    spot[path[-1]] = value
    return changed  # type: ignore[no-any-return]


def dotted(root: str, path: Path) -> str:
    """The path as the API server writes it."""
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def wrong_values(root: str, schema: Raw, sample: Raw) -> Iterator[tuple[str, Path, Any, str]]:
    """(path as the server writes it, path, value, words) for each bound below the root."""
    for path, node, below in fields(schema, sample):
        for words, value in beyond(node, below):
            yield dotted(root, path), path, value, words


def pool(spec: Raw, name: str = "pool") -> Raw:
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}


SPEC_SCHEMA, STATUS_SCHEMA = structural(TokenPoolSpec), structural(TokenPoolStatus)
WRONG_SPECS = list(wrong_values("spec", SPEC_SCHEMA, SPEC))


@pytest.mark.parametrize(
    ("field", "path", "value", "words"), WRONG_SPECS, ids=[f"{field} {words}" for field, _, _, words in WRONG_SPECS]
)
async def test_a_spec_beyond_a_bound_is_refused_by_its_path(
    api: Cluster, crd: str, field: str, path: Path, value: Any, words: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await api.create(kinds.TOKENPOOL, "default", pool(put(SPEC, path, value)))
    assert field in refused.value.message
    assert words in refused.value.message


async def test_a_spec_at_its_bounds_is_taken(api: Cluster, crd: str, namespace: str) -> None:
    cases = [
        put(SPEC, path, value)
        for path, node, _ in fields(SPEC_SCHEMA, SPEC)
        for value in at_bounds(node)
        if (path, value) not in UNREACHABLE
    ]
    assert len(cases) > 30
    for number, spec in enumerate([SPEC, *cases]):
        await api.create(kinds.TOKENPOOL, namespace, pool(spec, f"pool-{number}"))


async def test_a_status_beyond_a_bound_is_refused_by_its_path(api: Cluster, crd: str, namespace: str) -> None:
    """Also shows that the operator could write the whole of it."""
    stored = await api.create(kinds.TOKENPOOL, namespace, pool(SPEC))
    cases = list(wrong_values("status", STATUS_SCHEMA, STATUS))
    assert len(cases) > 40
    for field, path, value, words in cases:
        with pytest.raises(Invalid) as refused:
            await api.replace_status(kinds.TOKENPOOL, namespace, "pool", stored | {"status": put(STATUS, path, value)})
        assert field in refused.value.message
        assert words in refused.value.message
    written = await api.replace_status(kinds.TOKENPOOL, namespace, "pool", stored | {"status": STATUS})
    assert written["status"] == STATUS


def test_the_samples_name_every_field() -> None:
    """Else a bound would go untried."""
    for schema, sample in ((SPEC_SCHEMA, SPEC), (STATUS_SCHEMA, STATUS)):
        for _, node, below in fields(schema, sample):
            assert "properties" not in node or node["properties"].keys() == below.keys()
