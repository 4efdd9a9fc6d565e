"""The life of worker processes: started, briefed, replaced when they end or hang, drained. Real processes, scripted."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support import scripted_worker
from tokenpool_router.control.supervisor import Patience, Supervisor
from tokenpool_router.gauges import Gauges

COMMAND = (sys.executable, scripted_worker.__file__)
QUICK = Patience(
    first_pause_seconds=0.01, longest_pause_seconds=0.04, hang_seconds=60.0, ask_seconds=0.05, farewell_seconds=0.2
)
ROSTER = {"kind": "roster", "generation": 4, "shards": [{"id": "a", "slot": 0}]}
CALLERS = {"kind": "callers", "callers": None}


@dataclass
class Watched:
    """A supervisor, and what it told its owner."""

    journal: Path
    gauges: Gauges
    reports: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    ends: list[tuple[int, tuple[int, int]]] = field(default_factory=list)
    supervisor: Supervisor = field(init=False)
    task: "asyncio.Task[None]" = field(init=False)

    def ended(self, row: int) -> None:
        """With the pair in its slot 1, as the owner finds it."""
        self.ends.append((row, self.gauges.get(row, 1)))

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """What workers noted of one kind of message."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0.01)

    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self.supervisor.workers if worker]

    async def drained(self, seconds: float = 5.0) -> None:
        self.supervisor.drain(seconds)
        await asyncio.wait_for(self.task, 10)


@asynccontextmanager
async def supervised(
    journal: Path, script: str, count: int = 1, *, patience: Patience = QUICK, knows: bool = True,
    command: tuple[str, ...] = COMMAND,
) -> AsyncIterator[Watched]:  # fmt: skip
    watched = Watched(journal, Gauges.create(count + 1, 4))
    watched.supervisor = Supervisor(
        count, ["--script", script, "--journal", str(journal)], watched.gauges,
        lambda row, message: watched.reports.append((row, message)), watched.ended, command=command, patience=patience,
    )  # fmt: skip
    if knows:
        watched.supervisor.tell(CALLERS)
        watched.supervisor.tell(ROSTER)
    watched.task = asyncio.create_task(watched.supervisor.run())
    try:
        yield watched
    finally:
        if not watched.task.done():
            watched.supervisor.kill()
            watched.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watched.task
        watched.gauges.close()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def test_a_new_worker_hears_what_is_known_before_it_takes_clients(journal: Path) -> None:
    async with supervised(journal, "good", knows=False) as watched:
        supervisor = watched.supervisor
        await watched.until(lambda: watched.reports)
        assert supervisor.trouble == "worker 0 does not serve yet"
        assert supervisor.serving() == []
        supervisor.tell(CALLERS)
        supervisor.tell(ROSTER | {"generation": 3})
        supervisor.tell(ROSTER)
        await watched.until(lambda: not supervisor.trouble)
        await supervisor.gather()
        [worker] = supervisor.serving()
        assert worker.report
        assert worker.report["roster_generation"] == 4
        worker.process.kill()
        await watched.until(lambda: len(watched.heard("start")) == 2)
        await watched.until(supervisor.serving)
    assert [entry["generation"] for entry in watched.heard("roster")] == [3, 4, 4], "the newest one is enough"


async def test_a_worker_that_waits_to_be_told_is_not_taken_for_one_that_hangs(journal: Path) -> None:
    hasty = Patience(hang_seconds=0.5, ask_seconds=0.05)
    async with supervised(journal, "waits", knows=False, patience=hasty) as watched:
        await watched.until(lambda: len(watched.reports) > 15)
        assert (len(watched.heard("start")), watched.supervisor.restarts) == (1, 0)


async def test_a_worker_that_dies_is_replaced_and_the_other_serves_on(journal: Path) -> None:
    async with supervised(journal, "good", 2) as watched:
        supervisor = watched.supervisor
        await watched.until(lambda: not supervisor.trouble)
        first, second = watched.pids()
        for row in (0, 1):
            watched.gauges.set(row, 1, 70, 7)
        os.kill(first, signal.SIGKILL)
        await watched.until(lambda: watched.ends)
        assert watched.ends == [(0, (70, 7))], "its numbers are still there when its end is told"
        assert supervisor.trouble == ""
        assert [worker.row for worker in supervisor.serving()] == [1]
        await watched.until(lambda: len(supervisor.serving()) == 2)
        assert supervisor.restarts == 1
        assert (watched.gauges.get(0, 1), watched.gauges.get(1, 1)) == ((0, 0), (70, 7))
        assert second in watched.pids()
        os.kill(second, signal.SIGKILL)
        os.kill(watched.pids()[0], signal.SIGKILL)
        await watched.until(lambda: supervisor.trouble == "no worker serves")
        await watched.until(lambda: len(supervisor.serving()) == 2)


async def test_one_that_ends_at_once_is_started_more_and_more_rarely(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        async with supervised(journal, "ends-at-once") as watched:
            await watched.until(lambda: watched.supervisor.restarts >= 5)
            assert watched.supervisor.trouble == "worker 0 does not serve yet"
            await watched.drained()
    said = [record.getMessage() for record in caplog.records if "another" in record.getMessage()]
    assert said[0] == "worker 0 ended with code 3; starting another in 0.0 s"
    assert all("code 3" in line for line in said)


@pytest.mark.parametrize(
    ("lived", "pauses"),
    [([0, 0, 0, 0, 0], [1, 2, 4, 4, 4]), ([0, 0, 9, 0, 0], [1, 2, 1, 2, 4]), ([9, 9, 9], [1, 1, 1])],
)
async def test_pauses_double_and_begin_anew_after_a_sound_life(
    lived: list[float], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience(first_pause_seconds=1, longest_pause_seconds=4, sound_seconds=5)
    gauges = Gauges.create(2, 1)
    supervisor = Supervisor(1, [], gauges, lambda *_: None, lambda _: None, patience=patience)
    now, lives, paused = 0.0, list(lived), []

    async def live(_row: int) -> str:
        nonlocal now
        now += lives.pop(0)
        return "ended"

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        if not lives:
            supervisor.drain(0)

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    monkeypatch.setattr(supervisor, "_live", live)
    monkeypatch.setattr(supervisor, "_pause", pause)
    await supervisor._keep(0)
    assert paused == pauses
    gauges.close()


async def test_a_program_that_cannot_be_started_is_tried_again(
    journal: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "worker"
    with caplog.at_level(logging.ERROR):
        async with supervised(journal, "good", command=(str(program),)) as watched:
            await watched.until(lambda: watched.supervisor.restarts >= 2)
            program.write_text(f'#!/bin/sh\nexec {COMMAND[0]} {COMMAND[1]} "$@"\n')
            program.chmod(0o755)
            await watched.until(watched.supervisor.serving)
            await watched.drained()
    assert "worker 0 could not be started" in caplog.text


@pytest.mark.parametrize("how", ["stopped", "mute"])
async def test_one_that_hangs_is_ended_and_replaced(journal: Path, how: str) -> None:
    patience = Patience(first_pause_seconds=0.01, ask_seconds=0.05, hang_seconds=1.5)
    async with supervised(journal, "mute" if how == "mute" else "good", patience=patience) as watched:
        if how == "stopped":
            await watched.until(watched.supervisor.serving)
            os.kill(watched.pids()[0], signal.SIGSTOP)
        await watched.until(lambda: watched.supervisor.restarts == 1)
        await watched.until(lambda: len(watched.heard("start")) == 2)


async def test_one_that_does_not_answer_is_shown_with_what_it_said_last(journal: Path) -> None:
    async with supervised(journal, "good", 2) as watched:
        supervisor = watched.supervisor
        await watched.until(lambda: not supervisor.trouble)
        await supervisor.gather()
        os.kill(watched.pids()[1], signal.SIGSTOP)
        supervisor.tell(ROSTER | {"generation": 5})
        await supervisor.gather()
        reports = [worker.report for worker in supervisor.serving()]
        assert [report and report["roster_generation"] for report in reports] == [5, 4]
        os.kill(watched.pids()[1], signal.SIGCONT)


async def test_what_is_said_late_counts_all_the_same(journal: Path) -> None:
    async with supervised(journal, "late") as watched:
        await watched.until(lambda: len(watched.reports) >= 2)
        assert watched.reports[1][1]["counters"][0][2] == 2
        assert watched.supervisor.restarts == 0


async def test_one_that_talks_nonsense_is_replaced_and_ends_nobody_else(journal: Path) -> None:
    async with supervised(journal, "nonsense") as watched:
        with contextlib.suppress(AttributeError):
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await watched.until(lambda: watched.supervisor.restarts >= 2)
        assert not watched.task.done()


async def test_all_are_told_that_certificates_changed_and_a_new_one_is_not(journal: Path) -> None:
    async with supervised(journal, "ends-on-tls", 2) as watched:
        await watched.until(lambda: not watched.supervisor.trouble)
        watched.supervisor.tell({"kind": "tls"})
        await watched.until(lambda: watched.supervisor.restarts == 2)
        await watched.until(lambda: len(watched.supervisor.serving()) == 2)
        assert len(watched.heard("tls")) == 2


async def test_a_drain_waits_for_all_and_for_their_last_words(journal: Path) -> None:
    async with supervised(journal, "good", 2) as watched:
        await watched.until(lambda: not watched.supervisor.trouble)
        await watched.drained(seconds=7.0)
        assert {row for row, message in watched.reports if message["id"] == 0} == {0, 1}
        assert watched.supervisor.spans() == [{"name": "last words"}] * 2
        assert watched.supervisor.spans() == []
        assert sorted(row for row, _ in watched.ends) == [0, 1]
        assert watched.supervisor.restarts == 0
    assert [entry["seconds"] for entry in watched.heard("drain")] == pytest.approx([7.0, 7.0], abs=0.5)


async def test_one_that_stays_is_made_to_end(journal: Path) -> None:
    async with supervised(journal, "stays") as watched:
        await watched.until(watched.supervisor.serving)
        await watched.drained(seconds=0.3)
        assert watched.ends == [(0, (0, 0))]


async def test_a_drain_does_not_wait_for_a_pause_to_end(journal: Path) -> None:
    patience = Patience(first_pause_seconds=600, ask_seconds=0.05)
    async with supervised(journal, "ends-at-once", patience=patience) as watched:
        await watched.until(lambda: watched.supervisor.restarts == 1)
        await watched.drained()
    assert len(watched.heard("start")) == 1


async def test_a_worker_on_its_way_when_the_drain_begins_is_drained_too(journal: Path) -> None:
    async with supervised(journal, "good") as watched:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert watched.pids() == [], "the process is being made"
        await watched.drained()
    assert len(watched.heard("drain")) == 1


async def test_whoever_cancels_leaves_no_process_behind(journal: Path) -> None:
    async with supervised(journal, "good", 2) as watched:
        await watched.until(lambda: not watched.supervisor.trouble)
        pids = watched.pids()
        watched.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watched.task
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
