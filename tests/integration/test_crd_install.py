"""The chart as helm really installs it, limited to one namespace: its pod is admitted, its Role is enough, and the pool
outlives it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.build import client_tools
from cluster.controlplane import ControlPlane
from stack.kubectl import CommandFailed, Kubectl
from support.chart import CHART
from support.kubelet import Kubelet
from support.operator_process import OperatorProcess
from support.pools import Pool
from support.settle import assert_becomes
from tokenpool_kube import Cluster, kinds

RELEASE = "tokenpool"
ACCOUNT = "tokenpool-operator"
OPERATOR_PODS = "app.kubernetes.io/component=operator"


@pytest.fixture
def helm(control_plane: ControlPlane, namespace: str, crd: str, tmp_path: Path) -> Iterator[Kubectl]:
    """The chart is installed beside the namespace that it watches; helm and kubectl speak of the former."""
    system = f"{namespace}-system"
    # helm has a home of its own, so that no setting of the user takes part.
    home = {name: str(tmp_path / name.lower()) for name in ("HOME", "KUBECACHEDIR", "HELM_CACHE_HOME")}
    kubectl = Kubectl(client_tools(), control_plane.kubeconfig, system, home)
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": system, "labels": label}})
    # The test's own CRD is there already, and helm would not adopt it.
    values = f"watchNamespace={namespace},crds.install=false"
    kubectl.helm("install", RELEASE, str(CHART), "--set", values)
    yield kubectl
    kubectl.run("delete", "namespace", system, "--wait=false")


@pytest.fixture
def operator(helm: Kubectl, control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """A replica with the account that helm made, outside the cluster as there is no node."""
    token = helm.run("create", "token", ACCOUNT).strip()
    cluster = {"server": control_plane.url, "certificate-authority": str(control_plane.ca_file)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    process = OperatorProcess(tmp_path / "kubeconfig", tmp_path / "log", helm.namespace, watch_namespace=namespace)
    yield process
    process.kill()


async def test_the_operator_pod_is_admitted(helm: Kubectl, api: Cluster) -> None:
    async def exists() -> bool:
        return bool((await api.list(kinds.POD, helm.namespace, labels=OPERATOR_PODS)).items)

    await assert_becomes(exists)


def test_the_notes_name_what_was_installed(helm: Kubectl) -> None:
    notes = helm.helm("get", "notes", RELEASE)
    assert f"kubectl -n {helm.namespace} logs deployment/{ACCOUNT}" in notes
    assert "keeps the CRD and the pools" in notes
    assert helm.exists("deployment", ACCOUNT)


async def test_a_role_in_the_watched_namespace_is_enough(
    helm: Kubectl, operator: OperatorProcess, api: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    user = f"--as=system:serviceaccount:{helm.namespace}:{ACCOUNT}"
    assert helm.within(namespace).run("auth", "can-i", "create", "pods", user).strip() == "yes"
    with pytest.raises(CommandFailed):
        helm.within("default").run("auth", "can-i", "create", "pods", user)
    pool = Pool(api, namespace)
    operator.start()
    await pool.apply()
    await assert_becomes(pool.is_ready(2))
    assert await operator.stop() == 0
    refusals = [line for line in operator.log().splitlines() if "forbidden" in line or "Traceback" in line]
    assert refusals == []


async def test_the_pool_outlives_the_chart(helm: Kubectl, api: Cluster, namespace: str) -> None:
    pool = Pool(api, namespace)
    await pool.apply()
    before = await pool.get()
    helm.helm("uninstall", RELEASE)
    assert (await pool.get())["metadata"]["uid"] == before["metadata"]["uid"]
    assert not helm.exists("deployment", ACCOUNT)
