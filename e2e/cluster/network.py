"""Network namespaces of a local cluster. Addresses are 198.18.0.0/15, reserved for benchmarks: nothing real is there,
and no route leaves the namespaces.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

NAMESPACES = Path("/run/netns")


@dataclass(frozen=True)
class NodeAddress:
    """A node's place in the network; nodes count from 1."""

    number: int

    @property
    def namespace(self) -> str:
        """Name of its network namespace."""
        return "tokenpool" if self.number == 1 else f"tokenpool-{self.number}"

    @property
    def name(self) -> str:
        """The Kubernetes node's name."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """The node's own address."""
        return f"198.18.0.{self.number}"

    @property
    def pod_range(self) -> str:
        """Addresses of its pods."""
        return f"198.18.{self.number}.0/24"

    def enter(self) -> tuple[str, ...]:
        """Command prefix that runs a program in the namespace. (`ip netns exec` would also hide the cgroups.)"""
        return ("nsenter", f"--net={NAMESPACES / self.namespace}")


def run(*command: str) -> None:
    """Run a program of the system; ClusterError with its words when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


def create(nodes: list[NodeAddress], services: str) -> None:
    """Make the namespaces and the links between the first node and the others."""
    for node in nodes:
        run("ip", "netns", "add", node.namespace)
        run("ip", "-n", node.namespace, "link", "set", "lo", "up")
        # The namespace's own setting; the host's stays.
        run(*node.enter(), "sysctl", "-qw", "net.ipv4.ip_forward=1")
    first = nodes[0]
    run("ip", "-n", first.namespace, "addr", "add", f"{first.address}/32", "dev", "lo")
    for other in nodes[1:]:
        _link(first, other)
    for node in nodes:
        # kube-proxy rewrites these before they would go anywhere; the route only has to exist.
        run("ip", "-n", node.namespace, "route", "add", services, "dev", "lo")


def _link(first: NodeAddress, other: NodeAddress) -> None:
    near, far = f"to-{other.number}", f"to-{first.number}"
    run("ip", "-n", first.namespace, "link", "add", near, "type", "veth", "peer", "name", far, "netns", other.namespace)
    run("ip", "-n", first.namespace, "link", "set", near, "up")
    run("ip", "-n", other.namespace, "addr", "add", f"{other.address}/32", "dev", far)
    run("ip", "-n", other.namespace, "link", "set", far, "up")
    run("ip", "-n", first.namespace, "route", "add", other.address, "dev", near, "src", first.address)
    run("ip", "-n", other.namespace, "route", "add", first.address, "dev", far, "src", other.address)
    run("ip", "-n", first.namespace, "route", "add", other.pod_range, "via", other.address, "dev", near, "onlink")
    run("ip", "-n", other.namespace, "route", "add", first.pod_range, "via", first.address, "dev", far, "onlink")


def existing() -> list[str]:
    """Namespaces of a local cluster that exist, whoever left them."""
    if not NAMESPACES.is_dir():
        return []
    return sorted(name for name in os.listdir(NAMESPACES) if name == "tokenpool" or name.startswith("tokenpool-"))


def remove() -> None:
    """Delete the namespaces, and with them their devices, routes and rules."""
    for name in existing():
        run("ip", "netns", "delete", name)
