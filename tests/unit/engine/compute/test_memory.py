"""What the container's limits leave, read from files as the kernel writes them."""

from pathlib import Path

import pytest
import torch

from tokenpool_engine.compute import memory

GIB = 1 << 30
CPU = torch.device("cpu")


def pretend(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, available: int, limit: str | None, used: int = 0, stat: str = ""
) -> None:
    """A machine with so much memory and a container with such a limit."""
    for name, text in (("memory.max", limit), ("memory.current", str(used)), ("memory.stat", stat)):
        if text is not None:
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(memory, "_meminfo", lambda _field: available)
    monkeypatch.setattr(memory, "CGROUP_LIMITS", (str(folder / "memory.max"),))
    monkeypatch.setattr(memory, "CGROUP_USED", (str(folder / "memory.current"),))
    monkeypatch.setattr(memory, "CGROUP_STAT", (str(folder / "memory.stat"),))


@pytest.mark.parametrize(
    ("limit", "used", "stat", "free"),
    [
        (None, 0, "", 64 * GIB),
        ("max", 0, "", 64 * GIB),
        (str(8 * GIB), 3 * GIB, "", 5 * GIB),
        (str(8 * GIB), 8 * GIB, f"anon 1\nfile {4 * GIB}\ninactive_file {4 * GIB}", 4 * GIB),
        (str(8 * GIB), 8 * GIB, f"inactive_file 0\ntotal_inactive_file {GIB}", GIB),
        (str(100 * GIB), 1, "", 64 * GIB),
    ],
)
def test_free_memory_is_the_smaller_of_machine_and_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None, used: int, stat: str, free: int
) -> None:
    pretend(monkeypatch, tmp_path, available=64 * GIB, limit=limit, used=used, stat=stat)
    assert memory.free_bytes(CPU) == free


@pytest.mark.parametrize(("used", "tokens"), [(2 * GIB, 1024), (4 * GIB, 0), (5 * GIB, 0)])
def test_the_cache_takes_half_of_what_is_free_and_never_less_than_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, used: int, tokens: int
) -> None:
    pretend(monkeypatch, tmp_path, available=64 * GIB, limit=str(4 * GIB), used=used)
    assert memory.cache_tokens(CPU, bytes_per_token=1 << 20) == tokens


@pytest.mark.parametrize(
    ("free", "step", "graphs", "left"),
    [
        (50 * GIB, 2 * GIB, 0, 48 * GIB - 4 * GIB),
        # Recorded steps have a pool of their own, and the driver its part of each.
        (50 * GIB, 2 * GIB, 64, 46 * GIB - GIB - 4 * GIB),
        (50 * GIB, 0, 0, 46 * GIB),
        (6 * GIB, 2 * GIB, 0, 0),
        (5 * GIB, 2 * GIB, 0, 0),
    ],
)
def test_on_a_gpu_the_cache_takes_what_the_largest_step_leaves(free: int, step: int, graphs: int, left: int) -> None:
    assert memory.cache_bytes(memory.Measured(total=100 * GIB, free=free, step=step), graphs) == left


def test_a_gpu_is_measured_without_what_torch_keeps_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [10 * GIB]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.append(30 * GIB))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (free[-1], 80 * GIB))
    assert memory.measure(torch.device("cuda"), GIB) == memory.Measured(80 * GIB, 30 * GIB, GIB)
