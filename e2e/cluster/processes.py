"""Programs in the background: started with a log, found again by a pid file, ended for certain and never by mistake.

A pid file also holds the process's start time, so a recycled pid is never taken for ours.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster.errors import ClusterError

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.05


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which a process began; None when there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def die_with_parent() -> None:
    """In a child before exec: be killed when the starting thread ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment less proxy settings: what these programs talk to is on this machine."""
    return {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}


class Background:
    """Programs of one folder: NAME.pid and NAME.log each."""

    def __init__(self, folder: Path, prefix: Sequence[str] = (), *, outlive: bool = True) -> None:
        self._folder, self._prefix = folder, tuple(prefix)
        # The kernel's "die with your parent" means the thread that started the child, so that thread has to stay.
        self._starter = None if outlive else ThreadPoolExecutor(1, thread_name_prefix="starter")
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, name: str) -> Path:
        """Where the program's output goes."""
        return self._folder / f"{name}.log"

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a program, unless it runs already."""
        if self.is_running(name):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        line, variables = [*self._prefix, *command], {**without_proxies(os.environ), **(environment or {})}
        if self._starter:
            child = self._starter.submit(self._spawn, name, line, variables, die_with_parent).result()
        else:
            child = self._spawn(name, line, variables, None)
            # It goes on when this process ends; without a code Python would complain of a forgotten child.
            child.returncode = 0
        self._children[name] = child
        began = start_time(child.pid)
        self._pid_file(name).write_text(json.dumps({"pid": child.pid, "start": began}))

    def _spawn(
        self, name: str, command: list[str], variables: dict[str, str], before: Callable[[], None] | None
    ) -> "subprocess.Popen[bytes]":
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
                preexec_fn=before,  # noqa: PLW1509 - one system call, no locks
            )

    def pid(self, name: str) -> int | None:
        """The running program's pid."""
        child = self._children.get(name)
        if child:
            child.poll()
        try:
            found = json.loads(self._pid_file(name).read_text())
        except (OSError, ValueError):
            return None
        pid = int(found["pid"])
        return pid if start_time(pid) == found["start"] is not None else None

    def is_running(self, name: str) -> bool:
        """Whether the program of that name runs."""
        return self.pid(name) is not None

    def names(self) -> list[str]:
        """All programs that were started here and not stopped."""
        return sorted(path.stem for path in self._folder.glob("*.pid"))

    def stop(self, name: str, *, kill: bool = False, seconds: float = 10) -> None:
        """End a program and wait until it has; SIGKILL at once or after the time."""
        pid = self.pid(name)
        if pid is not None:
            end(pid, kill=kill, seconds=seconds)
        child = self._children.pop(name, None)
        if child:
            child.wait()
        self._pid_file(name).unlink(missing_ok=True)

    def wait(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`. Raises ClusterError with the log's end when the program dies or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.is_running(name):
                raise ClusterError(f"{name} ended:\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} is not ready after {seconds:.0f} s:\n{self.tail(name)}")
            time.sleep(POLL_SECONDS)

    def tail(self, name: str, lines: int = 25) -> str:
        """The end of the program's log."""
        path = self.log(name)
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join([f"(end of {path})", *text.splitlines()[-lines:]])

    def _pid_file(self, name: str) -> Path:
        return self._folder / f"{name}.pid"


def end(pid: int, *, kill: bool = False, seconds: float = 10) -> None:
    """End one process for certain."""
    began = start_time(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while began is not None and start_time(pid) == began:
        if time.monotonic() > deadline and not kill:
            return end(pid, kill=True)
        reap(pid)
        time.sleep(POLL_SECONDS)
    return None


def reap(pid: int) -> None:
    """Take the exit status if the process is our child; others have another parent for that."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
