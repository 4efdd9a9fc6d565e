"""A server as a child process: started, waited for, ended for certain. Every wait is bounded."""

import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.processes import die_with_parent
from engine_bench import session

START_SECONDS = 300.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.05
TAIL_LINES = 25
UNKNOWN_FLAG = re.compile(r"unrecognized arguments|invalid choice")


class ServerFailed(RuntimeError):
    """A server that ended or did not get ready; the text ends with its log's tail."""


class NotServed(RuntimeError):
    """This build of the engine does not know a flag."""


@dataclass(frozen=True)
class Launch:
    """What to run, where and as which `model` it answers, and where it says that it is ready."""

    command: Sequence[str]
    environment: Mapping[str, str]
    model: str
    port: int
    ready_port: int
    ready_path: str
    prompt: str | list[int]


@dataclass(frozen=True)
class Running:
    """`ready_seconds` is the time from start to the first answered request, be it a single token."""

    session: int
    port: int
    model: str
    ready_seconds: float


@contextmanager
def running(launch: Launch, log: Path) -> Iterator[Running]:
    """A server that answers; it is gone afterwards, however the block ends.

    Raises:
        ServerFailed: it does not answer in time.
        NotServed: it refuses a flag.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("wb") as output:
        child = subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(launch.environment),
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, no locks
        )
    try:
        _wait(child, launch, log, began + START_SECONDS)
        yield Running(child.pid, launch.port, launch.model, time.monotonic() - began)
    finally:
        session.end(child.pid, STOP_SECONDS)
        child.wait()


def _wait(child: "subprocess.Popen[bytes]", launch: Launch, log: Path, deadline: float) -> None:
    while not (_is_ready(launch) and _gives_a_token(launch, log)):
        if child.poll() is not None:
            said = tail(log)
            raise (NotServed if UNKNOWN_FLAG.search(said) else ServerFailed)(f"ended with {child.returncode}:\n{said}")
        if time.monotonic() > deadline:
            raise ServerFailed(f"not ready after {START_SECONDS:.0f} s:\n{tail(log)}")
        time.sleep(POLL_SECONDS)


def _is_ready(launch: Launch) -> bool:
    return _answer(launch.ready_port, "GET", launch.ready_path)[0] == http.HTTPStatus.OK


def _gives_a_token(launch: Launch, log: Path) -> bool:
    """A refusal would be repeated for ever, so it ends the wait."""
    body = {"model": launch.model, "prompt": launch.prompt, "max_tokens": 1, "temperature": 0}
    status, said = _answer(launch.port, "POST", "/v1/completions", json.dumps(body), seconds=60)
    if 400 <= status < 500:
        raise ServerFailed(f"refuses a request with {status}: {said}\n{tail(log)}")
    return status == http.HTTPStatus.OK


def _answer(port: int, method: str, path: str, body: str | None = None, *, seconds: float = 2) -> tuple[int, str]:
    """Status, 0 where nobody answers, and the beginning of the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        found = connection.getresponse()
        return found.status, found.read(500).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def tail(log: Path) -> str:
    """The end of a server's log, and where all of it is."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join([*lines, f"(end of {log})"])


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
