"""What nodes, network and volumes are told."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from cluster import cgroups, provider
from cluster.errors import ClusterError
from cluster.network import NodeAddress
from cluster.node import Node, cni_configuration, containerd_configuration, kubelet_configuration
from cluster.pause import write_pause_archive
from cluster.ports import free_ports, is_free
from cluster.volume import volume_objects


def node(number: int) -> Node:
    place = NodeAddress(number)
    return Node(Path("/state") / place.name, place, Path("/state/kubeconfig"))


def test_two_nodes_share_nothing() -> None:
    first, second = kubelet_configuration(node(1)), kubelet_configuration(node(2))
    for key in ("address", "cgroupRoot", "containerRuntimeEndpoint", "podLogsDir", "volumePluginDir"):
        assert first[key] != second[key], key
    assert NodeAddress(1).pod_range != NodeAddress(2).pod_range
    assert NodeAddress(1).namespace != NodeAddress(2).namespace


def test_containerd_keeps_everything_in_the_folder() -> None:
    lines = [line.strip() for line in containerd_configuration(Path("/state/node-1")).splitlines()]
    paths = [line.split('"')[1] for line in lines if line.startswith(("root =", "state =", "address =", "Root ="))]
    assert len(paths) == 4
    assert all(path.startswith("/state/node-1/") for path in paths)


def test_pods_hang_on_wires_not_on_a_bridge() -> None:
    # A bridge needs the kernel's br_netfilter for Services between pods of one node.
    [plugin] = cni_configuration(Path("/state/node-1"), "198.18.1.0/24")["plugins"]  # type: ignore[misc]
    assert (plugin["type"], plugin["ipMasq"]) == ("ptp", False)


def test_volume_and_claim_are_each_others() -> None:
    volume, claim = volume_objects("models", "demo", "/files")
    assert volume["spec"]["claimRef"] == {"namespace": "demo", "name": "models"}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_pause_archive_is_an_image(tmp_path: Path) -> None:
    (tmp_path / "pause").write_bytes(b"program")
    write_pause_archive(tmp_path / "pause", "localhost/pause:1", tmp_path / "pause.tar")
    with tarfile.open(tmp_path / "pause.tar") as archive:
        files = {name: (archive.extractfile(name) or pytest.fail(name)).read() for name in archive.getnames()}
    [manifest] = json.loads(files["manifest.json"])
    config = json.loads(files[manifest["Config"]])
    assert manifest["RepoTags"] == ["localhost/pause:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(files[manifest['Layers'][0]]).hexdigest()}"]


def test_cgroup_version_2_gives_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("")
    assert cgroups.is_version_2()
    cgroups.create(1)
    assert (tmp_path / "tokenpool-node-1").is_dir()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"  # one write for each; a file keeps the last


def test_free_ports_are_different_and_below_the_kernels_range() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(port < 32768 for port in ports)
    assert all(is_free(port) for port in ports)


@pytest.mark.parametrize(("variable", "value"), [("CLUSTER", "minikube"), ("NODES", "two")])
def test_settings_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("CLUSTER", "local")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ClusterError, match=f"{variable}={value}"):
        provider.choose_provider()
