"""What every kind of cluster can do, and which kind is meant: CLUSTER=local, kind or kubeconfig."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cluster.errors import ClusterError


class Provider(Protocol):
    """A cluster to install on."""

    def is_up(self) -> bool:
        """Whether it runs."""

    def up(self) -> None:
        """Start it; harmless when it runs, a repair when it half runs."""

    def down(self) -> None:
        """End it and leave nothing; harmless when it does not run."""

    def kubeconfig(self) -> Path:
        """A kubeconfig that works from the ordinary shell."""

    def load_images(self, archives: Sequence[Path]) -> None:
        """Bring images into all nodes."""

    def forward_service(self, namespace: str, service: str, port: int) -> str:
        """URL on loopback that leads to a Service."""

    def make_volume(self, name: str, *, namespace: str, directory: Path) -> None:
        """A bound volume claim that holds the files of a folder of this machine."""

    def shell(self, command: Sequence[str]) -> int:
        """Run a command (or a shell) inside the cluster's network; its exit code."""


def docker_answers() -> bool:
    """Whether a Docker engine is there; the client alone makes neither clusters nor images."""
    if not shutil.which("docker"):
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=15).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def choose_provider() -> Provider:
    """The provider that CLUSTER names; by default kind where a Docker engine answers, else local."""
    name = os.environ.get("CLUSTER") or ("kind" if docker_answers() else "local")
    match name:
        case "local":
            from cluster.local import Local

            return Local(nodes=_number("NODES", 1), gpus=_number("GPUS", 0))
        case "kind":
            from cluster.kind import Kind

            return Kind(nodes=_number("NODES", 1))
        case "kubeconfig":
            from cluster.existing import Existing

            return Existing()
    raise ClusterError(f"CLUSTER={name} is unknown; it is local, kind or kubeconfig")


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdigit():
        raise ClusterError(f"{variable}={text} must be a number")
    return int(text)
