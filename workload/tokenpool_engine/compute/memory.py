"""What the container may use: memory for the KV cache when the user does not say, and CPUs."""

from dataclasses import dataclass
from pathlib import Path

import torch

# Activations, the tokenizer, HTTP and a margin stay free.
CACHE_SHARE = 0.5
# Of a GPU on which everything else was measured: what fragmentation and the driver take later.
GPU_MARGIN = 0.04
# What the driver keeps of a recorded step.
GRAPH_BYTES = 16 << 20
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
CGROUP_STAT = ("/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat")
CGROUP_USED = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")


def free_bytes(device: torch.device) -> int:
    """Bytes that this process may still take, by the container's limit or the machine's."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    available = _meminfo("MemAvailable")
    limit, used = _first_number(CGROUP_LIMITS), _first_number(CGROUP_USED)
    if not limit:
        return available
    # Pages of files that were only read, like the weights, count as used but are given back on demand.
    return min(available, limit - (used or 0) + _inactive_file())


def cache_tokens(device: torch.device, bytes_per_token: int) -> int:
    """Tokens whose keys and values fit into the cache's share of what is free."""
    return max(int(free_bytes(device) * CACHE_SHARE) // bytes_per_token, 0)


@dataclass(frozen=True)
class Measured:
    """Bytes of a GPU: all of them, those free beside the loaded model, and what the largest step takes in passing."""

    total: int
    free: int
    step: int


def measure(device: torch.device, step_bytes: int) -> Measured:
    """The GPU as it is now, without what torch keeps for later."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return Measured(int(total), int(free), step_bytes)


def cache_bytes(gpu: Measured, graphs: int) -> int:
    """What is left for the cache beside the largest step, a margin and so many recorded steps."""
    # Recorded steps share a pool of their own, which other steps cannot use.
    steps = 2 * gpu.step if graphs else gpu.step
    return max(gpu.free - steps - graphs * GRAPH_BYTES - int(gpu.total * GPU_MARGIN), 0)


def _meminfo(field: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _first_number(paths: tuple[str, ...]) -> int | None:
    """The first readable number; "max" and absent files are no limit."""
    for path in map(Path, paths):
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            return int(text)
    return None


def _inactive_file() -> int:
    """Bytes of file pages that the kernel drops first; the kubelet, too, takes them off what is used."""
    for path in map(Path, CGROUP_STAT):
        if path.is_file():
            parted = (line.partition(" ") for line in path.read_text().splitlines() if line)
            numbers = {name: int(value) for name, _, value in parted}
            return numbers.get("total_inactive_file", numbers.get("inactive_file", 0))
    return 0


def cpu_quota() -> float | None:
    """CPUs that the container's cgroup allows; None without a limit."""
    version2 = Path("/sys/fs/cgroup/cpu.max")
    if version2.is_file():
        quota, period = version2.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    quota_v1 = _first_number(("/sys/fs/cgroup/cpu/cpu.cfs_quota_us",))
    period_v1 = _first_number(("/sys/fs/cgroup/cpu/cpu.cfs_period_us",))
    return quota_v1 / period_v1 if quota_v1 and period_v1 else None
