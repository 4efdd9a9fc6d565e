"""One JSON line a request on standard output, written by a thread: a reader that is slow must not slow the router."""

import logging
import os
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final

import orjson

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.2
# Lines that wait when nobody reads them; then the newest are dropped, and counted.
MOST_WAITING: Final = 20_000


FIELDS: Final = (
    "time",
    "request_id",
    "caller",
    "method",
    "path",
    "status",
    "outcome",
    "code",
    "shard",
    "attempts",
    "prompt_tokens",
    "completion_tokens",
    "queue_ms",
    "ttft_ms",
    "ms",
)


class AccessLog:
    """Takes lines from the loop's thread, and writes many at once from its own."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._stop = threading.Event()
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def add(self, entry: tuple[Any, ...]) -> None:
        """One more line, some time soon."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(entry)
        else:
            self.dropped += 1

    def close(self, seconds: float = 2.0) -> None:
        """Write what is left, for so long at most."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        stopped = False
        while not stopped:
            stopped = self._stop.wait(FLUSH_SECONDS)
            try:
                self._write()
            except OSError as error:
                # Nobody reads any more. Requests are served all the same.
                log.warning("the access log ends: %s", error)
                return

    def _write(self) -> None:
        lines = []
        while self._waiting:
            lines.append(line(self._waiting.popleft()))
        rest = memoryview(b"".join(lines))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def line(entry: tuple[Any, ...]) -> bytes:
    """One line of the log: times in UTC, durations in milliseconds, the path without its query."""
    at, request_id, caller, method, target, *middle, queued, first, whole = entry
    values = (
        datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        request_id.decode(errors="replace"),
        caller,
        method.decode(errors="replace"),
        target.partition(b"?")[0].decode(errors="replace"),
        *middle,
        *(None if seconds is None else round(seconds * 1000, 1) for seconds in (queued, first, whole)),
    )
    return orjson.dumps(dict(zip(FIELDS, values, strict=True)), option=orjson.OPT_APPEND_NEWLINE)
