"""Does somebody else use the machine? A figure from a busy machine is not wrong, but it is not the engine's."""

import time
from pathlib import Path

LOOK_SECONDS = 1.0
# Above this part of all cores a measurement carries a warning.
TOO_BUSY = 0.15
IDLE_FIELDS = (3, 4)


def ticks(stat: str) -> tuple[int, int]:
    """Busy and all ticks of the first line of /proc/stat; waiting for a disk is idle."""
    fields = [int(field) for field in stat.splitlines()[0].split()[1:9]]
    return sum(fields) - sum(fields[place] for place in IDLE_FIELDS), sum(fields)


def share(before: str, after: str) -> float:
    """The busy part of all cores between two readings of /proc/stat, 0 to 1."""
    (busy, total), (busy_then, total_then) = ticks(after), ticks(before)
    return (busy - busy_then) / max(total - total_then, 1)


def look() -> float:
    """Watch the machine for a moment, while nothing of ours runs."""
    stat = Path("/proc/stat")
    before = stat.read_text()
    time.sleep(LOOK_SECONDS)
    return share(before, stat.read_text())


def warning(busiest: float) -> str:
    """What a reader has to know; empty on a quiet machine."""
    if busiest < TOO_BUSY:
        return ""
    return f"The machine was busy: others used up to {busiest:.0%} of its cores just before a measurement."
