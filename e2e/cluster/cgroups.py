"""Control groups of a local cluster's nodes: a root for each, so that kubelets leave each other's pods alone."""

import contextlib
import time
from pathlib import Path

from cluster.processes import end

ROOT = Path("/sys/fs/cgroup")
PREFIX = "tokenpool-node-"


def is_version_2() -> bool:
    """Whether the host has one unified hierarchy."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Mount points of all hierarchies that a kubelet uses."""
    if is_version_2():
        return [ROOT]
    return _mounted("cgroup")


def _mounted(*kinds: str) -> list[Path]:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted({Path(fields[1]) for fields in mounts if fields[2] in kinds and fields[1].startswith(str(ROOT))})


def name_of(number: int) -> str:
    """The group of one node."""
    return f"{PREFIX}{number}"


def create(number: int) -> None:
    """Make the node's root group in every hierarchy."""
    for hierarchy in hierarchies():
        group = hierarchy / name_of(number)
        group.mkdir(exist_ok=True)
        if is_version_2():
            available = (hierarchy / "cgroup.controllers").read_text().split()
            for parent in (hierarchy, group):
                for name in available:
                    # One by one: a controller that the host cannot give must not keep the others back.
                    with contextlib.suppress(OSError):
                        (parent / "cgroup.subtree_control").write_text(f"+{name}")
        # A new cpuset of version 1 has no CPUs at all until somebody says which.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not is_version_2() and (hierarchy / file).exists():
                (group / file).write_text((hierarchy / file).read_text())


def groups() -> list[Path]:
    """All groups of all nodes, children before parents."""
    found = [path for top in _tops() for path in (top, *top.rglob("*")) if path.is_dir()]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _tops() -> list[Path]:
    # Also where runc made one on its own: on a host of version 1, systemd's hierarchy and the unified one beside it.
    return [
        path for hierarchy in _mounted("cgroup", "cgroup2") for path in hierarchy.glob(f"{PREFIX}*") if path.is_dir()
    ]


def pids() -> set[int]:
    """Processes inside the groups: the containers."""
    found: set[int] = set()
    for group in groups():
        with contextlib.suppress(OSError):
            found |= {int(line) for line in (group / "cgroup.procs").read_text().split()}
    return found


def remove(seconds: float = 20) -> None:
    """Kill what is inside and delete the groups; a group is busy for a moment after its last process."""
    for pid in pids():
        end(pid, kill=True)
    deadline = time.monotonic() + seconds
    while (left := groups()) and time.monotonic() < deadline:
        for group in left:
            with contextlib.suppress(OSError):
                group.rmdir()
        time.sleep(0.1)
