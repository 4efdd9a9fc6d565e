"""One node: containerd, kubelet and kube-proxy, with their configuration, inside the node's network namespace."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster import cgroups
from cluster.build import programs
from cluster.errors import ClusterError
from cluster.network import NodeAddress
from cluster.processes import Background

PAUSE_IMAGE = "localhost/tokenpool-pause:1"
CNI_PLUGINS = "/usr/lib/cni"
START_SECONDS = 60.0


@dataclass(frozen=True)
class Node:
    """A node's folder and address; `kubeconfig` is the way to the API server from inside."""

    folder: Path
    place: NodeAddress
    kubeconfig: Path

    @property
    def background(self) -> Background:
        """Its programs."""
        return Background(self.folder, self.place.enter())

    @property
    def socket(self) -> Path:
        """containerd's."""
        return self.folder / "containerd.sock"

    def start(self) -> None:
        """Start the three programs; does not wait for Ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        cgroups.create(self.place.number)
        self._write_configuration()
        background, bin_folder = self.background, programs()
        background.start("containerd", ["containerd", "--config", str(self.folder / "containerd.toml")])
        background.wait("containerd", self._containerd_answers, START_SECONDS)
        self._import_pause()
        kubelet = [
            str(bin_folder / "kubelet"),
            f"--kubeconfig={self.kubeconfig}",
            f"--config={self.folder / 'kubelet.json'}",
            f"--hostname-override={self.place.name}",
            f"--node-ip={self.place.address}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
        ]
        background.start("kubelet", kubelet)
        background.start("kube-proxy", [str(bin_folder / "kube-proxy"), f"--config={self.folder / 'proxy.json'}"])

    def ctr(self, *arguments: str) -> str:
        """containerd's own command line, in the kubelet's namespace."""
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def import_image(self, archive: Path) -> None:
        """Import an archive, unless this very one was."""
        marker = self.folder / "imported" / archive.name
        if marker.exists():
            return
        self.ctr("images", "import", str(archive))
        marker.parent.mkdir(exist_ok=True)
        marker.touch()

    def _containerd_answers(self) -> bool:
        try:
            self.ctr("version")
        except ClusterError:
            return False
        return True

    def _import_pause(self) -> None:
        """The sandbox image: one static program, packed here since no registry is needed for it."""
        from cluster.pause import write_pause_archive

        archive = self.folder / "pause.tar"
        if not archive.exists():
            write_pause_archive(programs() / "pause", PAUSE_IMAGE, archive)
        self.import_image(archive)

    def _write_configuration(self) -> None:
        cni = self.folder / "cni"
        cni.mkdir(exist_ok=True)
        (cni / "10-tokenpool.conflist").write_text(json.dumps(cni_configuration(self.folder, self.place.pod_range)))
        (self.folder / "containerd.toml").write_text(containerd_configuration(self.folder))
        (self.folder / "kubelet.json").write_text(json.dumps(kubelet_configuration(self)))
        (self.folder / "proxy.json").write_text(json.dumps(proxy_configuration(self)))


def cni_configuration(folder: Path, pod_range: str) -> dict[str, object]:
    """A wire to each pod; no masquerading, since nothing leaves.

    Not a bridge: without the kernel's br_netfilter, which few machines load, a bridge carries the answer of a pod to a
    Service's client on the same node past the connection tracking, and the client never knows whose answer it is.
    """
    wire = {
        "type": "ptp",
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pod_range}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(folder / "cni-data"),
        },
    }
    return {"cniVersion": "0.4.0", "name": "tokenpool", "plugins": [wire]}


def containerd_configuration(folder: Path) -> str:
    """Version 2 of the format, which containerd 1.6 to 2 read."""
    return f"""version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-run"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{folder}/runc"
"""


def kubelet_configuration(node: Node) -> dict[str, object]:
    """A kubelet that gives its pods a group root of their own and touches nothing else on the host."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.name_of(node.place.number)}",
        "failSwapOn": False,
        "address": node.place.address,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        # The host's disk is not ours to manage.
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "",
        # Nothing of ours asks a DNS, and none runs; without an address the kubelet would complain of every pod.
        "clusterDNS": ["198.19.0.10"],
        "clusterDomain": "cluster.local",
        "podLogsDir": str(node.folder / "pod-logs"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        "shutdownGracePeriod": "0s",
    }


def proxy_configuration(node: Node) -> dict[str, object]:
    """nftables mode; it leaves the kernel's connection tracking limits as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node.place.name,
        "bindAddress": node.place.address,
        "clientConnection": {"kubeconfig": str(node.kubeconfig)},
        "clusterCIDR": "198.18.0.0/16",
        "conntrack": {"maxPerCore": 0, "min": 0},
        # By default a Service follows its pods a second late; a test would wait for it everywhere.
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }
