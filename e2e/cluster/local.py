"""The provider `local`: a real Kubernetes without a container engine, in network namespaces of its own. Needs root."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cluster import cgroups, controlplane, network, sweep
from cluster.api import Api, write_kubeconfig
from cluster.build import client_tools, programs
from cluster.cache import locked
from cluster.controlplane import Layout
from cluster.errors import ClusterError
from cluster.network import NodeAddress
from cluster.node import Node
from cluster.ports import free_ports, listens
from cluster.processes import Background
from cluster.progress import step
from cluster.system import install_missing
from cluster.volume import volume_objects

FOLDER = Path("/var/lib/tokenpool-cluster")
LOCK = Path("/run/lock/tokenpool-cluster")
NODE_SECONDS = 90.0
GPU = "nvidia.com/gpu"


@dataclass
class Local:
    """One or two nodes. `gpus` is what each node advertises, without a device behind it."""

    nodes: int = 1
    gpus: int = 0

    @property
    def _places(self) -> list[NodeAddress]:
        return [NodeAddress(number) for number in range(1, self.nodes + 1)]

    @property
    def _layout(self) -> Layout:
        return Layout(FOLDER, self._places[0].address, 6443, 2379, 2380, 10257)

    @property
    def _nodes(self) -> list[Node]:
        return [Node(FOLDER / place.name, place, self._layout.kubeconfig) for place in self._places]

    @property
    def _control(self) -> Background:
        return Background(FOLDER, self._places[0].enter())

    @property
    def _forwards(self) -> Background:
        return Background(FOLDER / "forwards")

    def kubeconfig(self) -> Path:
        """For the ordinary shell: through the forwarder."""
        return FOLDER / "kubeconfig"

    def is_up(self) -> bool:
        """Every program runs."""
        control = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        if not all(self._control.is_running(name) for name in control) or not self._forwards.is_running("api"):
            return False
        programs_of_nodes = ("containerd", "kubelet", "kube-proxy")
        return all(node.background.is_running(name) for node in self._nodes for name in programs_of_nodes)

    def up(self) -> None:
        """Start; what half runs is swept away first."""
        if os.geteuid():
            raise ClusterError("CLUSTER=local needs root (or use CLUSTER=kind with Docker, or CLUSTER=kubeconfig)")
        with locked(LOCK, "the local cluster"):
            self._refuse_other_size()
            if not self.is_up():
                install_missing()
                programs()
                self._sweep()
                self._start()

    def _refuse_other_size(self) -> None:
        """A cluster that runs is somebody's work: asking for another size must not sweep it away."""
        running = len(list(FOLDER.glob("node-*")))
        if running not in (0, self.nodes) and Local(running).is_up():
            raise ClusterError(f"a cluster with NODES={running} is up; keep to that, or make cluster-down first")

    def _start(self) -> None:
        with step(f"Kubernetes with {self.nodes} node{'s' if self.nodes > 1 else ''}") as current:
            network.create(self._places, controlplane.SERVICE_RANGE)
            current.detail("API server")
            api = self._start_control_plane()
            current.detail("nodes")
            for node in self._nodes:
                node.start()
            for node in self._nodes:
                node.background.wait("kubelet", partial(api.node_is_ready, node.place.name), NODE_SECONDS)
            self._advertise_gpus(api)

    def _start_control_plane(self) -> Api:
        inside = controlplane.prepare(self._layout, also_reached_at=["127.0.0.1"])
        port = self._forward("api", self._layout.address, self._layout.port)
        api = Api(f"https://127.0.0.1:{port}", inside.ca_file, inside.token)
        write_kubeconfig(self.kubeconfig(), api)
        controlplane.start(self._control, self._layout, api)
        scheduler = [
            str(programs() / "kube-scheduler"),
            f"--kubeconfig={self._layout.kubeconfig}",
            "--leader-elect=false",
        ]
        self._control.start("kube-scheduler", scheduler)
        return api

    def _advertise_gpus(self, api: Api) -> None:
        if not self.gpus:
            return
        path = f"/status/capacity/{GPU.replace('/', '~1')}"
        patch = [{"op": "add", "path": path, "value": str(self.gpus)}]
        for place in self._places:
            url = f"/api/v1/nodes/{place.name}/status"
            api.request(url, method="PATCH", body=patch, content_type="application/json-patch+json")

    def down(self) -> None:
        """End everything and check that nothing is left."""
        with locked(LOCK, "the local cluster"):
            self._sweep()

    def _sweep(self) -> None:
        """In the order in which nothing restarts anything."""
        if not FOLDER.exists() and not network.existing() and not cgroups.groups():
            return
        with step("stopping the local cluster"):
            for node in sorted(FOLDER.glob("node-*")):
                programs_of_node = Background(node)
                for name in ("kubelet", "kube-proxy"):
                    programs_of_node.stop(name, kill=True)
            cgroups.remove()
            sweep.end_processes(FOLDER)
            sweep.unmount(FOLDER)
            network.remove()
            cgroups.remove()
            sweep.remove_traces(FOLDER)
            shutil.rmtree(FOLDER, ignore_errors=True)
            left = sweep.leftovers(FOLDER)
        if left:
            raise ClusterError("the cluster left behind:\n  " + "\n  ".join(left))

    def load_images(self, archives: Sequence[Path]) -> None:
        """Import into every node's containerd what it does not have yet."""
        for node in self._nodes:
            for archive in archives:
                with step(f"image {archive.name} into {node.place.name}"):
                    node.import_image(archive)

    def forward_service(self, namespace: str, service: str, port: int) -> str:
        """A forwarder to the Service's cluster IP; the same one for the same Service."""
        found = json.loads(self._kubectl("get", "service", service, "--namespace", namespace, "-o", "json"))
        address = found["spec"]["clusterIP"]
        return f"http://127.0.0.1:{self._forward(f'{namespace}.{service}.{port}.{address}', address, port)}"

    def _forward(self, name: str, address: str, port: int) -> int:
        """Start a forwarder unless it runs; its port on loopback."""
        port_file = FOLDER / "forwards" / f"{name}.port"
        if self._forwards.is_running(name):
            return int(port_file.read_text())
        [listening] = free_ports(1)
        namespace = network.NAMESPACES / self._places[0].namespace
        self._forwards.start(
            name,
            [shutil.which("python3") or "python3", str(Path(__file__).with_name("forward.py")), "--namespace",
             str(namespace), "--listen", str(listening), "--to", f"{address}:{port}"],
        )  # fmt: skip
        self._forwards.wait(name, lambda: listens(listening), 10)
        port_file.write_text(str(listening))
        return listening

    def make_volume(self, name: str, *, namespace: str, directory: Path) -> None:
        """A hostPath volume: the nodes share this machine's files."""
        objects = volume_objects(name, namespace, str(directory.resolve()))
        self._kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def shell(self, command: Sequence[str]) -> int:
        """Inside the first node's network, with kubectl and helm at hand."""
        if not self.is_up():
            raise ClusterError("the local cluster does not run; make cluster-up starts it")
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._layout.kubeconfig),
            "PATH": f"{client_tools()}:{os.environ.get('PATH', '')}",
        }
        inside = command or [os.environ.get("SHELL", "/bin/sh")]
        return subprocess.run([*self._places[0].enter(), *inside], env=environment, check=False).returncode

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = [str(client_tools() / "kubectl"), "--kubeconfig", str(self.kubeconfig()), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout
