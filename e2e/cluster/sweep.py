"""Finding and ending what a local cluster left, also a killed one: by where things are, not by what was noted."""

import contextlib
import os
import subprocess
from pathlib import Path

from cluster import cgroups, network
from cluster.build import PROGRAMS
from cluster.processes import end

LOG_LINKS = Path("/var/log/containers")
NETWORK_RESULTS = Path("/var/lib/cni/results")


def processes(folder: Path) -> dict[int, str]:
    """Processes that have the folder in their command line, or are in a cluster's network; pid → command line."""
    namespaces = {_inode(network.NAMESPACES / name) for name in network.existing()}
    spared = {os.getpid(), *ancestors(os.getpid())}
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if is_ours(line, folder) or (entry / "ns" / "net").stat().st_ino in namespaces:
                found[int(entry.name)] = line
    return found


def is_ours(line: str, folder: Path) -> bool:
    """Whether a command line is of a program that we started; a person's `tail` of a log in the folder is not."""
    program = Path(line.split(" ", 1)[0]).name
    ours = {*PROGRAMS, "containerd", "containerd-shim-runc-v2", "runc", "nsenter"}
    return f"{folder}/" in line and program in ours


def ancestors(pid: int) -> set[int]:
    """The parents of a process, up to the first. The shell that called us may well name the folder."""
    found: set[int] = set()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])
        except (OSError, IndexError):
            break
        found.add(pid)
    return found


def _inode(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return -1


def end_processes(folder: Path) -> None:
    """Kill them all; shims restart nothing, but may appear while we look, so look until there are none."""
    for _ in range(10):
        found = processes(folder)
        if not found:
            return
        for pid in found:
            end(pid, kill=True)


def mounts(folder: Path) -> list[str]:
    """Mount points below the folder, innermost first."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted({point for point in points if point.startswith(f"{folder}/")}, key=len, reverse=True)


def unmount(folder: Path) -> None:
    """Unmount all; a mount may lie over another at the same place."""
    for _ in range(5):
        points = mounts(folder)
        if not points:
            return
        for point in points:
            subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def remove_traces(folder: Path) -> None:
    """Delete what containerd, kubelet and the network plugins note at places that cannot be configured."""
    for link in LOG_LINKS.glob("*.log"):
        if str(link.readlink()).startswith(f"{folder}/"):
            link.unlink(missing_ok=True)
    for note in folder.glob("*/containerd-run/io.containerd.runtime.v2.task/k8s.io/*/address"):
        Path(note.read_text().removeprefix("unix://")).unlink(missing_ok=True)
    # A sandbox's names are the folders in which its shim runs.
    for sandbox in folder.glob("*/containerd/io.containerd.grpc.v1.cri/sandboxes/*"):
        for result in NETWORK_RESULTS.glob(f"*-{sandbox.name}-*"):
            result.unlink(missing_ok=True)


def leftovers(folder: Path) -> list[str]:
    """What should be gone and is not, for a person to read."""
    return [
        *(f"process {pid}: {line[:120]}" for pid, line in processes(folder).items()),
        *(f"mount {point}" for point in mounts(folder)),
        *(f"network namespace {name}" for name in network.existing()),
        *(f"cgroup {group}" for group in cgroups.groups()),
        *([f"folder {folder}"] if folder.exists() else []),
    ]
