"""A proxy as a running process: pinned to one core, measured with all its children, ended by its own pid."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cluster.processes import die_with_parent

TICKS = os.sysconf("SC_CLK_TCK")
PROXY_CORE, LOAD_CORE = 0, 1
START_SECONDS = 60.0


class NotStarted(RuntimeError):
    """It does not listen; the text has its last words."""


class Running:
    """One proxy; ends with the block."""

    def __init__(self, command: Sequence[str], port: int, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                preexec_fn=_settle,  # noqa: PLW1509 - two system calls, no locks
                start_new_session=True,
            )
        self._wait(port)

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.end()
        raise NotStarted(self._log.read_text(errors="replace")[-600:])

    def cpu_seconds(self) -> float:
        """So far, of the process and all below it."""
        seconds = 0.0
        for pid in family(self.process.pid):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                seconds += (int(fields[11]) + int(fields[12])) / TICKS
        return seconds

    def memory(self) -> tuple[int, ...]:
        """Now, by process, in bytes: proportional set sizes, so pages that processes share count once."""
        found = []
        for pid in family(self.process.pid):
            with suppress(OSError):
                found.append(proportional(pid))
        return tuple(found)

    def end(self) -> None:
        """Its whole session, which is ours alone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _settle() -> None:
    die_with_parent()
    os.sched_setaffinity(0, {PROXY_CORE})


def proportional(pid: int) -> int:
    """The proportional set size of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
