"""The provider `kind`: Kubernetes in Docker, where a Docker engine answers. Needs the kind program on the PATH."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.build import client_tools
from cluster.cache import cache_folder
from cluster.errors import ClusterError
from cluster.ports import free_ports, listens
from cluster.processes import Background
from cluster.progress import step
from cluster.volume import volume_objects

NAME = "tokenpool"
MODELS = "/tokenpool-cache"


@dataclass
class Kind:
    """A kind cluster whose nodes see the cache folder."""

    nodes: int = 1

    @property
    def _folder(self) -> Path:
        return cache_folder() / "kind"

    def kubeconfig(self) -> Path:
        """kind's own."""
        return self._folder / "kubeconfig"

    def is_up(self) -> bool:
        """Whether kind knows the cluster."""
        return shutil.which("kind") is not None and NAME in self._run("kind", "get", "clusters").split()

    def up(self) -> None:
        """Create it."""
        if shutil.which("kind") is None:
            raise ClusterError("CLUSTER=kind needs the kind program on the PATH (or use CLUSTER=local as root)")
        if self.is_up():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        mounts = [{"hostPath": str(cache_folder()), "containerPath": MODELS, "readOnly": True}]
        roles = ["control-plane", *["worker"] * (self.nodes - 1)]
        config = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": role, "extraMounts": mounts} for role in roles],
        }
        (self._folder / "config.yaml").write_text(json.dumps(config))
        with step("kind create cluster"):
            self._run("kind", "create", "cluster", "--name", NAME, "--config", str(self._folder / "config.yaml"),
                      "--kubeconfig", str(self.kubeconfig()), "--wait", "180s")  # fmt: skip

    def down(self) -> None:
        """Delete it and its port-forwards."""
        forwards = Background(self._folder / "forwards")
        for name in forwards.names():
            forwards.stop(name)
        if self.is_up():
            with step("kind delete cluster"):
                self._run("kind", "delete", "cluster", "--name", NAME, "--kubeconfig", str(self.kubeconfig()))

    def load_images(self, archives: Sequence[Path]) -> None:
        """Load archives into all nodes."""
        for archive in archives:
            with step(f"image {archive.name} into kind"):
                self._run("kind", "load", "image-archive", str(archive), "--name", NAME)

    def forward_service(self, namespace: str, service: str, port: int) -> str:
        """`kubectl port-forward`, one for each Service."""
        forwards, name = Background(self._folder / "forwards"), f"{namespace}.{service}.{port}"
        port_file = self._folder / "forwards" / f"{name}.port"
        if not forwards.is_running(name):
            [listening] = free_ports(1)
            command = [*self._kubectl_command(), "--namespace", namespace, "port-forward", f"service/{service}",
                       f"{listening}:{port}"]  # fmt: skip
            forwards.start(name, command)
            forwards.wait(name, lambda: listens(listening), 30)
            port_file.write_text(str(listening))
        return f"http://127.0.0.1:{port_file.read_text()}"

    def make_volume(self, name: str, *, namespace: str, directory: Path) -> None:
        """A hostPath inside the node containers, which mount the cache folder."""
        inside = f"{MODELS}/{directory.resolve().relative_to(cache_folder().resolve())}"
        objects = {"apiVersion": "v1", "kind": "List", "items": volume_objects(name, namespace, inside)}
        self._run(*self._kubectl_command(), "apply", "-f", "-", stdin=json.dumps(objects))

    def shell(self, command: Sequence[str]) -> int:
        """A shell in the control plane's container."""
        inside = command or ["/bin/bash"]
        flags = ["-it"] if os.isatty(0) else ["-i"]
        done = subprocess.run(["docker", "exec", *flags, f"{NAME}-control-plane", *inside], check=False)
        return done.returncode

    def _kubectl_command(self) -> list[str]:
        return [str(client_tools() / "kubectl"), "--kubeconfig", str(self.kubeconfig())]

    def _run(self, *command: str, stdin: str | None = None) -> str:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout
