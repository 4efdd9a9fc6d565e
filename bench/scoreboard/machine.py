"""On what was it measured? A figure without its machine says nothing."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def description() -> dict[str, Any]:
    """CPU, cores that this process may use, memory and the versions that decide speed."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": package_version("torch"),
        "transformers": package_version("transformers"),
    }


def cpu_model(cpuinfo: str) -> str:
    """The first model name of /proc/cpuinfo."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, platform.machine())


def package_version(name: str) -> str | None:
    """What is installed beside the benchmark; None when it is not."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit() -> str:
    """The commit of the working tree, with a mark when files differ from it; empty outside of git."""
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
