"""The provider `kubeconfig`: a cluster that somebody else runs. It is never started or stopped from here."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.build import client_tools
from cluster.cache import cache_folder
from cluster.errors import ClusterError
from cluster.ports import free_ports, listens
from cluster.processes import Background


@dataclass
class Existing:
    """The cluster of KUBECONFIG. Its nodes must be able to pull the images, and its claims are its own."""

    def kubeconfig(self) -> Path:
        """The file that KUBECONFIG names."""
        path = Path(os.environ.get("KUBECONFIG") or "")
        if not path.is_file():
            raise ClusterError("CLUSTER=kubeconfig needs KUBECONFIG to name a file")
        return path

    def is_up(self) -> bool:
        """It is somebody's to keep up."""
        return self.kubeconfig().is_file()

    def up(self) -> None:
        """Nothing to start."""
        self.kubeconfig()

    def down(self) -> None:
        """Only our port-forwards end."""
        forwards = Background(cache_folder() / "forwards")
        for name in forwards.names():
            forwards.stop(name)

    def load_images(self, archives: Sequence[Path]) -> None:
        """Nodes pull for themselves."""
        raise ClusterError("CLUSTER=kubeconfig cannot load images: push them and name them in the chart's values")

    def forward_service(self, namespace: str, service: str, port: int) -> str:
        """`kubectl port-forward`."""
        forwards, name = Background(cache_folder() / "forwards"), f"{namespace}.{service}.{port}"
        [listening] = free_ports(1)
        forwards.stop(name)
        command = [str(client_tools() / "kubectl"), "--kubeconfig", str(self.kubeconfig()), "--namespace", namespace]
        forwards.start(name, [*command, "port-forward", f"service/{service}", f"{listening}:{port}"])
        forwards.wait(name, lambda: listens(listening), 30)
        return f"http://127.0.0.1:{listening}"

    def make_volume(self, name: str, *, namespace: str, directory: Path) -> None:
        """A claim with the model is the cluster owner's to make."""
        raise ClusterError(f"CLUSTER=kubeconfig: make the claim {namespace}/{name} with the files of {directory} first")

    def shell(self, command: Sequence[str]) -> int:
        """There is no way into its network from here."""
        raise ClusterError("CLUSTER=kubeconfig has no cluster-shell; use kubectl exec or kubectl port-forward")
