"""Programs of the system that a local cluster needs, installed by apt where they are missing."""

import shutil
import subprocess
from pathlib import Path

from cluster.errors import ClusterError
from cluster.node import CNI_PLUGINS
from cluster.progress import step

# Program (or file) → Debian package.
NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    f"{CNI_PLUGINS}/ptp": "containernetworking-plugins",
    "nft": "nftables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "sysctl": "procps",
}


def missing_packages() -> list[str]:
    """Debian packages of what is not here."""
    folders = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def is_there(name: str) -> bool:
        return Path(name).exists() if name.startswith("/") else shutil.which(name, path=folders) is not None

    return sorted({package for name, package in NEEDED.items() if not is_there(name)})


def install_missing() -> None:
    """Install them. Raises ClusterError where there is no apt."""
    packages = missing_packages()
    if not packages:
        return
    if not shutil.which("apt-get"):
        raise ClusterError(f"please install {', '.join(packages)}: there is no apt-get here to do it")
    with step(f"apt-get install {' '.join(packages)}"):
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ClusterError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
