"""Which processes belong to a server, how much memory do they take, and are they gone? Read from /proc.

A server is started in a session of its own; whatever it starts stays in it.
"""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

SESSION_FIELD = 3
WATCH_SECONDS = 1.0
POLL_SECONDS = 0.05


def members(session: int) -> list[int]:
    """Living processes of a session."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _is_member(path, session)]


def _is_member(process: Path, session: int) -> bool:
    try:
        fields = (process / "stat").read_text().rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return False  # it has just ended
    return fields[0] not in "ZX" and int(fields[SESSION_FIELD]) == session


def memory_bytes(session: int) -> int:
    """Proportional set size of all processes together: a page that two share counts once."""
    return sum(_proportional_bytes(pid) for pid in members(session))


def _proportional_bytes(pid: int) -> int:
    try:
        return pss_of(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0  # it has just ended


def pss_of(rollup: str) -> int:
    """Bytes of the `Pss:` line of a smaps_rollup; 0 without one."""
    lines = (line.split() for line in rollup.splitlines() if line.startswith("Pss:"))
    return next((int(fields[1]) * 1024 for fields in lines), 0)


class PeakMemory:
    """The largest of readings a second apart, while it is open; never less than one reading at the end."""

    def __init__(self, sessions: list[int]) -> None:
        self.bytes = 0
        self._sessions = sessions
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak memory", daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._read()

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            self._read()

    def _read(self) -> None:
        self.bytes = max(self.bytes, sum(map(memory_bytes, self._sessions)))


def end(session: int, seconds: float) -> None:
    """End every process of a session: asked first, killed after the time."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        for pid in members(session):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while members(session):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        else:
            return
