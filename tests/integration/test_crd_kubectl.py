"""What a person sees of the contract through the real kubectl: explain, tables, scale, wait, and typos refused."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.build import client_tools
from cluster.controlplane import ControlPlane
from stack.kubectl import CommandFailed, Kubectl
from tokenpool_api import names
from tokenpool_api.schema import structural
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_api.status import TokenPoolStatus
from tokenpool_kube import Cluster, kinds

Raw = dict[str, Any]
POOL = """
apiVersion: tokenpool.dev/v1alpha1
kind: TokenPool
metadata: {name: chat}
spec:
  model: {source: hf://org/name}
  shards: {min: 2, max: 4}
"""
SetStatus = Callable[[int], Awaitable[None]]


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str, crd: str, tmp_path: Path) -> Kubectl:
    # A cache of its own: kubectl would remember another test's API server by its port.
    cache = {"KUBECACHEDIR": str(tmp_path / "cache")}
    return Kubectl(client_tools(), control_plane.kubeconfig, namespace, cache)


@pytest.fixture
def set_status(api: Cluster, namespace: str) -> SetStatus:
    """Write what the operator would, as if it had last seen that generation."""

    async def write(observed_generation: int) -> None:
        stored = await api.get(kinds.TOKENPOOL, namespace, "chat")
        assert stored
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "AllReady",
            "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": observed_generation,
        }
        status = {
            "observedGeneration": observed_generation,
            "conditions": [condition],
            "readySummary": "2/2",
            "shards": {"desired": 2, "current": 2, "ready": 2, "pending": 0},
            "utilization": 73,
            "tokensPerSecond": 512,
            "revision": {"current": "abcd1234", "updating": "", "image": "engine:1"},
        }
        await api.replace_status(kinds.TOKENPOOL, namespace, "chat", {**stored, "status": status})

    return write


def leaves(node: Raw, path: str) -> Iterator[tuple[str, Raw]]:
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from leaves(child.get("items", child), f"{path}.{name}")


FIELDS = {
    **dict(leaves(structural(TokenPoolSpec), "tokenpool.spec")),
    **dict(leaves(structural(TokenPoolStatus), "tokenpool.status")),
}


def test_explain_knows_every_field(kubectl: Kubectl) -> None:
    words = set(kubectl.run("explain", "tokenpool", "--recursive").split())
    assert {path.rsplit(".", 1)[1] for path in FIELDS} <= words


@pytest.mark.parametrize(
    "path",
    ["tokenpool.spec.model.source", "tokenpool.spec.shards.tokenBudget", "tokenpool.spec.shards.resources.limits"],
)
def test_explain_says_what_the_models_say(kubectl: Kubectl, path: str) -> None:
    said = " ".join(kubectl.run("explain", path).split())
    assert FIELDS[path]["description"] in said


async def test_tables(kubectl: Kubectl, set_status: SetStatus) -> None:
    kubectl.apply(POOL)
    await set_status(1)
    header, row = kubectl.run("get", "tp").splitlines()
    assert header.split() == ["NAME", "READY", "SHARDS", "UTILIZATION", "MODEL", "REVISION", "AGE"]
    assert row.split()[:6] == ["chat", "True", "2/2", "73", "hf://org/name", "abcd1234"]
    header, row = kubectl.run("get", "tokenpools", "-o", "wide").splitlines()
    # A column that has no text is blank, so cells are found by where their heading stands.
    starts = [header.index(name) for name in header.split()]
    cells = [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    wide = dict(zip(header.split(), cells, strict=True))
    assert list(wide)[7:] == ["REASON", "TOKENS/S", "DESIRED", "PENDING", "UPDATING", "IMAGE"]
    assert [wide[name] for name in list(wide)[7:]] == ["AllReady", "512", "2", "0", "", "engine:1"]


def test_get_all_lists_pools(kubectl: Kubectl) -> None:
    kubectl.apply(POOL)
    assert f"{names.SINGULAR}.{names.GROUP}/chat" in kubectl.run("get", "all", "-o", "name")


def test_scale_sets_the_floor_and_says_why_not(kubectl: Kubectl) -> None:
    kubectl.apply(POOL)
    kubectl.run("scale", "tokenpool/chat", "--replicas=3")
    scaled = kubectl.get("tokenpool", "chat")
    assert (scaled["spec"]["shards"]["min"], scaled["metadata"]["generation"]) == (3, 2)
    with pytest.raises(CommandFailed, match=r"shards\.min must not be greater than shards\.max"):
        kubectl.run("scale", "tokenpool/chat", "--replicas=5")
    assert kubectl.get("tokenpool", "chat")["spec"] == scaled["spec"]


async def test_wait_believes_only_a_status_of_the_newest_spec(kubectl: Kubectl, set_status: SetStatus) -> None:
    kubectl.apply(POOL)
    await set_status(1)
    # A status write is no new generation.
    assert kubectl.get("tokenpool", "chat")["metadata"]["generation"] == 1
    kubectl.run("wait", "--for=condition=Ready", "tokenpool/chat", "--timeout=10s")
    kubectl.apply(POOL.replace("min: 2", "min: 3"))
    with pytest.raises(CommandFailed, match="timed out waiting"):
        kubectl.run("wait", "--for=condition=Ready", "tokenpool/chat", "--timeout=1s")
    await set_status(2)
    kubectl.run("wait", "--for=condition=Ready", "tokenpool/chat", "--timeout=10s")


def test_a_typo_is_refused_by_its_path(kubectl: Kubectl) -> None:
    with pytest.raises(CommandFailed, match=r'unknown field "spec\.shards\.minn"'):
        kubectl.apply(POOL.replace("min: 2", "minn: 2"))
    assert not kubectl.exists("tokenpool", "chat")
