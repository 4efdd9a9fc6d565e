"""The access log: what a line says, and that a reader who is slow or gone costs lines and nothing else."""

import json
import os
from datetime import datetime

import pytest

from tokenpool_router.journey import access_log
from tokenpool_router.journey.access_log import AccessLog, Entry, Lines

WHEN = "2026-12-01T08:24:48.287Z"
AT = datetime.fromisoformat(WHEN).timestamp() + 0.0004
ENTRY: Entry = (
    *(AT, b'i"d', "team", b"POST", b'/v1/a"b?secret=1', 200, "answered", None, "chat-0"),
    *(2, 7, 9, 0.0, None, 1.01849),
)


def test_a_line_is_json_and_shows_no_query() -> None:
    lines = Lines()
    first = lines.line(ENTRY)
    assert first.endswith(b"}\n")
    assert json.loads(first) == {
        "time": WHEN,
        "request_id": 'i"d',
        "caller": "team",
        "method": "POST",
        "path": '/v1/a"b',
        "status": 200,
        "outcome": "answered",
        "code": None,
        "shard": "chat-0",
        "attempts": 2,
        "prompt_tokens": 7,
        "completion_tokens": 9,
        "queue_ms": 0.0,
        "ttft_ms": None,
        "ms": 1018.5,
    }
    later = lines.line((ENTRY[0] + 1, b"\xff", None, b"GET", b"/\xfe", *ENTRY[5:]))
    assert json.loads(later)["time"] == WHEN.replace(":48.", ":49.")


@pytest.mark.interpreted
def test_lines_are_written_and_a_reader_that_is_gone_is_no_matter() -> None:
    read, write = os.pipe()
    log = AccessLog(write)
    log.start()
    log.add(ENTRY)
    log.close()
    assert json.loads(os.read(read, 10_000))["shard"] == "chat-0"
    os.close(read)
    broken = AccessLog(write)
    broken.start()
    broken.add(ENTRY)
    broken.close()
    assert not broken._writer.is_alive()
    os.close(write)


@pytest.mark.interpreted
def test_what_nobody_reads_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "MOST_WAITING", 2)
    log = AccessLog()
    for _ in range(5):
        log.add(ENTRY)
    assert log.dropped == 3
