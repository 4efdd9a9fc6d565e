"""Finding and ending what a local cluster left, also a killed one: by where things are, not by what was noted."""

import contextlib
import os
import subprocess
from pathlib import Path

from cluster import cgroups, network
from cluster.processes import end


def processes(folder: Path) -> dict[int, str]:
    """Processes that have the folder in their command line, or are in a cluster's network; pid → command line."""
    namespaces = {_inode(network.NAMESPACES / name) for name in network.existing()}
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if f"{folder}/" in line or (entry / "ns" / "net").stat().st_ino in namespaces:
                found[int(entry.name)] = line
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


def leftovers(folder: Path) -> list[str]:
    """What should be gone and is not, for a person to read."""
    return [
        *(f"process {pid}: {line[:120]}" for pid, line in processes(folder).items()),
        *(f"mount {point}" for point in mounts(folder)),
        *(f"network namespace {name}" for name in network.existing()),
        *(f"cgroup {group}" for group in cgroups.groups()),
        *([f"folder {folder}"] if folder.exists() else []),
    ]
