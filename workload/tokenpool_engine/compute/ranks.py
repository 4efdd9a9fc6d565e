"""The other ranks as rank 0 sees them: processes that it starts, tells what to do, and watches.

A shard lives with all its ranks or not at all: the first that is lost is the reason for which the process ends. Whoever
waits for the ranks waits in `guard`, because a collective operation with a dead rank may never return.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeVar

from tokenpool_engine.compute import group
from tokenpool_engine.compute.orders import Order, Stop, encode
from tokenpool_engine.failure import Reason, StartError

log = logging.getLogger(__name__)
T = TypeVar("T")

# When the others end, rank 0 often fails too, and a moment earlier than it hears why.
HEARING_SECONDS: Final = 2.0
STOP_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Rank:
    """One other rank: its number, its process, and the wire to it."""

    number: int
    process: "subprocess.Popen[bytes]"
    wire: Connection


class Ranks:
    """Ranks 1 … size - 1, each with a thread here that hears what it says and when it ends."""

    def __init__(self, size: int, threads: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._done = 0
        self._loss: StartError | None = None
        self._lost: Callable[[StartError], None] | None = None
        self._closing = False
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True)
        self.meeting = str(Path(self._folder.name) / "meeting")
        self._ranks = [self._start(number, threads) for number in range(1, size)]
        for rank in self._ranks:
            threading.Thread(target=self._hear, args=(rank,), name=f"rank-{rank.number}", daemon=True).start()

    @property
    def processes(self) -> "list[subprocess.Popen[bytes]]":
        """Those of ranks 1 … size - 1."""
        return [rank.process for rank in self._ranks]

    def join(self) -> None:
        """Form the group with all ranks. Raises StartError when one is lost before."""
        self.answered()
        self.guard(lambda: group.join(0, self.size, self.meeting))

    def tell(self, order: Order) -> None:
        """Send an order to all ranks. From one thread at a time. Raises StartError when a rank is gone."""
        frame = encode(order)
        try:
            for rank in self._ranks:
                rank.wire.send_bytes(frame)
        except OSError as error:
            with self._changed:
                self._changed.wait_for(lambda: self._loss, HEARING_SECONDS)
                raise self._loss or StartError(Reason.RANK_LOST, f"a rank takes no orders: {error}") from error

    def answered(self) -> None:
        """Wait until every rank has done what it was told last; not for steps. Raises StartError."""
        with self._changed:
            self._changed.wait_for(lambda: self._loss or self._done == len(self._ranks))
            if self._loss:
                raise self._loss
            self._done = 0

    def guard(self, work: Callable[[], T]) -> T:
        """What `work` gives, which needs all ranks; when one is lost meanwhile, raises StartError with its reason."""
        future: Future[T] = Future()
        future.add_done_callback(lambda _: self._notify())
        threading.Thread(target=_fulfil, args=(future, work), name="guarded", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._loss or future.done())
            if future.done() and future.exception():
                self._changed.wait_for(lambda: self._loss, HEARING_SECONDS)
            if self._loss:
                raise self._loss
        return future.result()

    def watch(self, lost: Callable[[StartError], None]) -> None:
        """From now on call `lost` once, from some thread, when a rank is lost; at once if that has happened."""
        with self._changed:
            self._lost = lost
            loss = self._loss
        if loss:
            lost(loss)

    def fail(self, error: Exception) -> None:
        """Rank 0 failed in a step, so the ranks are out of step. If a rank is lost, that is why; else this is."""
        with self._changed:
            self._changed.wait_for(lambda: self._loss, HEARING_SECONDS)
        self.lose(StartError(Reason.RANK_LOST, f"rank 0 failed in a step: {type(error).__name__}: {error}"))

    def lose(self, loss: StartError) -> None:
        """The ranks cannot go on together. Only the first reason counts."""
        with self._changed:
            if self._loss or self._closing:
                return
            self._loss, lost = loss, self._lost
            self._changed.notify_all()
        log.critical("%s", loss)
        if lost:
            lost(loss)

    def close(self) -> None:
        """Tell all ranks to end, and see to it that they do."""
        with self._changed:
            self._closing = True
        for rank in self._ranks:
            try:
                rank.wire.send_bytes(encode(Stop()))
            except OSError:
                log.info("rank %d has ended already", rank.number)
        for rank in self._ranks:
            try:
                rank.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                rank.process.kill()
                rank.process.wait()
        self._folder.cleanup()

    def _start(self, number: int, threads: int) -> Rank:
        ours, theirs = socket.socketpair()
        arguments = [theirs.fileno(), number, self.size, threads, self.meeting]
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-m", "tokenpool_engine.compute.rank", *map(str, arguments)],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "LOCAL_RANK": str(number)},
                stdin=subprocess.DEVNULL,
            )
        return Rank(number, process, Connection(ours.detach()))

    def _hear(self, rank: Rank) -> None:
        """The rank's thread here: count what it has done, and say how it ended."""
        said: dict[str, Any] = {}
        while not said:
            try:
                said = json.loads(rank.wire.recv_bytes())
            except (EOFError, OSError):
                break
            if not said:
                with self._changed:
                    self._done += 1
                    self._changed.notify_all()
        try:
            code: int | None = rank.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        self.lose(_loss(f"rank {rank.number} of {self.size}", said, code))

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _loss(who: str, said: dict[str, Any], code: int | None) -> StartError:
    """The end of a rank in words: its own, else how its process ended."""
    if said:
        return StartError(Reason(said["reason"]), f"{who} failed: {said['message']}")
    if code is None:
        how = "says nothing more"
    elif code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        how = f"ended with exit code {code}"
    return StartError(Reason.RANK_LOST, f"{who} {how}; the shard cannot go on without it")


def _fulfil(future: "Future[T]", work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # whoever asked gets it, whatever it is
        future.set_exception(error)
