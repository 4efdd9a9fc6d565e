"""One JSON line a request on standard output, written by a thread: a reader that is slow must not slow the router."""

import logging
import os
import threading
from datetime import UTC, datetime
from typing import Final

import orjson

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.2
# Lines that wait when nobody reads them; then the newest are dropped, and counted.
MOST_WAITING: Final = 20_000


PLAIN: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/-._~"
LINE: Final = (
    b'{"time":"%b","request_id":%b,"caller":%b,"method":"%b","path":%b,"status":%d,"outcome":"%b","code":%b,"shard":%b,'
    b'"attempts":%d,"prompt_tokens":%d,"completion_tokens":%d,%b"ms":%.1f}\n'
)
Entry = tuple[
    float,
    bytes,
    str | None,
    bytes,
    bytes,
    int,
    str,
    str | None,
    str | None,
    int,
    int,
    int,
    float | None,
    float | None,
    float,
]
"""Wall time, request id, caller, method, target, status, outcome, code of a refusal, shard, attempts, prompt tokens,
answer tokens, seconds in the queue, until the first byte, altogether."""


class AccessLog:
    """Makes lines in the loop's thread, and writes many at once from one of its own."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._waiting: list[bytes] = []
        self._stop = threading.Event()
        self._lines = Lines()
        self.dropped = 0
        self._writer = threading.Thread(target=self._run, name="access-log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._writer.start()

    def add(self, entry: Entry) -> None:
        """One more line, some time soon."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(self._lines.line(entry))
        else:
            self.dropped += 1

    def close(self, seconds: float = 2.0) -> None:
        """Write what is left, for so long at most."""
        self._stop.set()
        if self._writer.is_alive():
            self._writer.join(seconds)

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
        waiting, self._waiting = self._waiting, []
        rest = memoryview(b"".join(waiting))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


class Lines:
    """Entries as lines: times in UTC, durations in milliseconds, the path without its query."""

    def __init__(self) -> None:
        self._second, self._words = -1, b""

    def line(self, entry: Entry) -> bytes:
        """One line. What clients may have written is escaped; the rest needs no looking at."""
        (
            at,
            request_id,
            caller,
            method,
            target,
            status,
            outcome,
            code,
            shard,
            attempts,
            prompt,
            answer,
            queued,
            first,
            whole,
        ) = entry
        if queued is not None and first is not None:
            times = b'"queue_ms":%.1f,"ttft_ms":%.1f,' % (queued * 1000, first * 1000)
        else:
            times = b'"queue_ms":%b,"ttft_ms":%b,' % (_milliseconds(queued), _milliseconds(first))
        return LINE % (
            self._time(at),
            _quoted(request_id),
            _text(caller),
            method,
            _quoted(target.partition(b"?")[0]),
            status,
            outcome.encode(),
            _text(code),
            _text(shard),
            attempts,
            prompt,
            answer,
            times,
            whole * 1000,
        )

    def _time(self, at: float) -> bytes:
        """Most lines share their second with the one before."""
        second = int(at)
        if second != self._second:
            self._second = second
            self._words = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
        return b"%b.%03dZ" % (self._words, int((at - second) * 1000))


def _quoted(words: bytes) -> bytes:
    """As JSON, whatever it is."""
    return orjson.dumps(words.decode(errors="replace")) if words.translate(None, PLAIN) else b'"%b"' % words


def _text(value: str | None) -> bytes:
    return b"null" if value is None else b'"%b"' % value.encode()


def _milliseconds(seconds: float | None) -> bytes:
    return b"null" if seconds is None else b"%.1f" % (seconds * 1000)
