"""The operator with exactly the rights that the chart gives it, and what it says when one is missing."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.controlplane import ControlPlane
from support.chart import operator_rules
from support.kubelet import Kubelet
from support.operator_process import OperatorProcess
from support.pools import Pool
from support.settle import assert_becomes
from tokenpool_kube import Cluster, Kind, kinds

Raw = dict[str, Any]

CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
NAME = "tokenpool-operator-test"


async def grant(api: Cluster, rules: list[Raw]) -> None:
    body = {"metadata": {"name": NAME}, "rules": rules}
    await api.apply(CLUSTER_ROLE, None, NAME, body, manager="test")


@pytest.fixture
async def operator(
    api: Cluster, control_plane: ControlPlane, namespace: str, crd: str, tmp_path: Path
) -> AsyncIterator[OperatorProcess]:
    """A replica that logs in as a service account with the chart's rights and no others."""
    await api.apply(kinds.SERVICE_ACCOUNT, namespace, NAME, {"metadata": {"name": NAME}}, manager="test")
    await grant(api, operator_rules())
    binding = {
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }
    await api.apply(CLUSTER_ROLE_BINDING, None, NAME, binding, manager="test")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = await api.create_sub(kinds.SERVICE_ACCOUNT, namespace, NAME, "token", request)
    config = _kubeconfig(control_plane, token["status"]["token"])
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    process = OperatorProcess(tmp_path / "kubeconfig", tmp_path / "log", namespace)
    yield process
    process.kill()


def _kubeconfig(control_plane: ControlPlane, token: str) -> Raw:
    cluster = {"server": control_plane.url, "certificate-authority": str(control_plane.ca_file)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


async def test_these_rights_are_enough(
    operator: OperatorProcess, api: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    pool = Pool(api, namespace)
    operator.start()
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    await pool.apply(shards={"min": 1}, image="engine:2", router={"replicas": 2})
    await assert_becomes(pool.is_ready(1))
    assert await operator.stop() == 0
    # Namespaces of earlier tests may still be on their way out; refusals there say nothing about rights.
    said = [line for line in operator.log().splitlines() if "it is being terminated" not in line]
    assert [line for line in said if any(word in line for word in ("forbidden", "Traceback", " ERROR "))] == []
    events = [
        item for item in (await api.list(kinds.EVENT, namespace)).items if item["regarding"]["kind"] == "TokenPool"
    ]
    assert {item["reason"] for item in events} >= {"AllReady", "StartingShards", "RollingOut"}


async def test_a_missing_right_is_named_and_its_return_heals(
    operator: OperatorProcess, api: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    pool = Pool(api, namespace)
    without = operator_rules()
    [pods] = [rule for rule in without if rule["resources"] == ["pods"]]
    pods["verbs"].remove("create")
    await grant(api, without)
    operator.start()
    await pool.apply()
    await assert_becomes(pool.has(Degraded="+Forbidden", Ready="-Forbidden"))
    messages = [item["message"] for item in (await pool.status())["conditions"] if item["type"] == "Degraded"]
    assert 'cannot create resource "pods"' in messages[0]
    await grant(api, operator_rules())
    await assert_becomes(pool.is_ready(2))
