"""The loop: take what came in, plan, run, commit, hand out. One thread of its own; the rest of the process only talks
to it through `submit` and `cancel`.

A step that fails ends its own requests with an error, not the process. Several in a row turn health red, more end the
loop. Should that or a bug end it, every request that it had, and every later one, gets an explicit end, and whoever
watches hears why.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from tokenpool_engine.metrics import Metrics
from tokenpool_engine.request import Finish, Picked, Request
from tokenpool_engine.scheduler import Scheduler, Step
from tokenpool_engine.stream import ENDED, Stream, Update

log = logging.getLogger(__name__)

# So many failed steps in a row turn health red; so many end the process, for a new one may do better.
FAILED_STEPS_LIMIT = 3
FAILED_STEPS_END = 10
STALL_SECONDS = 120.0


class Computer(Protocol):
    """What computes a step. The real one loads torch; the loop need not know it."""

    def run(self, step: Step) -> Mapping[str, Picked]:
        """Request id → what was picked, for slices that sample."""

    def close(self) -> None:
        """Give back threads and memory."""


class RepeatedFailure(Exception):
    """One step after the other failed; the text has the last reason."""


class Engine:
    """Owns scheduler and runner; everything here runs on its thread unless it says otherwise."""

    def __init__(self, scheduler: Scheduler, runner: Computer, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._scheduler, self._runner, self._metrics, self._clock = scheduler, runner, metrics, clock
        self._inbox: deque[Stream] = deque()
        self._cancelled: deque[Stream] = deque()
        self._streams: dict[str, Stream] = {}
        self._wake = threading.Condition()
        self._stopping = self._ended = self._resting = False
        self._thread = threading.Thread(target=self._live, name="engine", daemon=True)
        self._progress_at = clock()
        self._failed_steps = 0
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._watcher: Callable[[str], None] | None = None

    def watch(self, ended: Callable[[str], None]) -> None:
        """Before the start: call `ended` on the engine's thread, with the reason, should the loop end by itself."""
        self._watcher = ended

    def start(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; updates go to that event loop."""
        self._event_loop = event_loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the present step. From any thread; blocks until it has ended."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def submit(self, request: Request) -> Stream:
        """Queue a request. From any thread."""
        stream = Stream(request, given=len(request.output), submitted_at=self._clock())
        with self._wake:
            if self._ended:
                self._send([(stream, ENDED)])
                return stream
            if self._resting and not self._inbox:
                # Nothing was due until now, so the time at rest is no stall.
                self._progress_at = self._clock()
            self._inbox.append(stream)
            self._wake.notify()
        return stream

    def cancel(self, stream: Stream) -> None:
        """Drop a request before the next step. From any thread; harmless when it has ended."""
        with self._wake:
            self._cancelled.append(stream)
            self._wake.notify()

    def trouble(self) -> str:
        """Why the engine is not healthy; empty while it is. From any thread."""
        if not self._thread.is_alive():
            return "the engine's thread has ended"
        if self._failed_steps >= FAILED_STEPS_LIMIT:
            return f"{self._failed_steps} steps in a row failed"
        silent = self._clock() - self._progress_at
        if silent > STALL_SECONDS and self.outstanding_tokens():
            return f"no step for {silent:.0f} s although there is work"
        return ""

    def outstanding_tokens(self) -> int:
        """Tokens still to compute or generate, at most, those not yet taken in included. From any thread."""
        with self._wake:
            arriving = sum(stream.request.outstanding for stream in self._inbox)
        return arriving + self._metrics.outstanding_tokens

    def _live(self) -> None:
        """The thread: the loop, then an end for everybody who still waits."""
        reason = ""
        try:
            self._loop()
        except RepeatedFailure as error:
            reason = str(error)
        except Exception as error:
            log.exception("a bug has ended the engine's loop")
            reason = f"a bug has ended the engine's loop: {type(error).__name__}: {error}"
        with self._wake:
            self._ended = True
            left = [*self._streams.values(), *self._inbox]
            self._inbox.clear()
        self._streams.clear()
        self._send([(stream, ENDED) for stream in left])
        self._runner.close()
        if reason and self._watcher:
            self._watcher(reason)

    def _loop(self) -> None:
        while self._take_in():
            step = self._scheduler.plan()
            if not step.slices:
                continue  # woken by a cancellation only
            began = self._clock()
            try:
                sampled = self._runner.run(step)
            except Exception as error:
                log.exception("a step of %d tokens failed", step.size)
                self._fail(step, error)
            else:
                self._failed_steps = 0
                self._scheduler.commit(step, sampled)
                # Counted before anybody sees the tokens, so that who got an answer finds it in the numbers.
                self._metrics.observe_step(step, self._clock() - began)
                self._observe_queues()
                self._hand_out(step, began)
            self._progress_at = self._clock()

    def _take_in(self) -> bool:
        """Move what came into the scheduler; sleep while there is nothing. False: stop."""
        with self._wake:
            while not (self._inbox or self._cancelled or self._stopping) and self._scheduler.is_idle:
                self._resting = True
                self._wake.wait()
                self._resting = False
                self._progress_at = self._clock()
            arrived, dropped = list(self._inbox), list(self._cancelled)
            for stream in arrived:
                self._streams[stream.request.id] = stream
            self._inbox.clear()
            self._cancelled.clear()
            stopping = self._stopping
        for stream in arrived:
            self._accept(stream)
        for stream in dropped:
            if stream.request.finish is None:
                self._scheduler.cancel(stream.request)
            self._send([(stream, Update(finish=stream.request.finish))])
            self._streams.pop(stream.request.id, None)
        if arrived or dropped:
            self._observe_queues()
        return not stopping

    def _accept(self, stream: Stream) -> None:
        """Hand a request to the scheduler; one that the door should have refused costs itself only."""
        try:
            self._scheduler.submit(stream.request)
        except ValueError as error:
            log.exception("a request came in that can never run")
            stream.request.finish = Finish.ERROR
            del self._streams[stream.request.id]
            self._send([(stream, Update(finish=Finish.ERROR, error=str(error)))])

    def _fail(self, step: Step, error: Exception) -> None:
        self._failed_steps += 1
        failed = self._scheduler.fail(step)
        self._observe_queues()
        text = f"the shard could not compute this request: {type(error).__name__}"
        self._send([(self._streams.pop(request.id), Update(finish=Finish.ERROR, error=text)) for request in failed])
        if self._failed_steps >= FAILED_STEPS_END:
            last = f"{type(error).__name__}: {error}"
            raise RepeatedFailure(f"{self._failed_steps} steps in a row failed, the last with {last}")

    def _observe_queues(self) -> None:
        waiting = self._scheduler.waiting
        oldest = self._streams.get(waiting[0].id) if waiting else None
        self._metrics.observe_queues(self._scheduler, oldest.submitted_at if oldest else None)

    def _hand_out(self, step: Step, began: float) -> None:
        updates, now = [], self._clock()
        for part in step.slices:
            stream = self._streams.get(part.request.id)
            if stream is None:
                continue
            if not stream.started:
                stream.started = True
                self._metrics.observe_start(stream, began)
            if not part.samples:
                continue
            news = stream.news()
            self._metrics.observe_tokens(stream, len(news.tokens), now)
            updates.append((stream, news))
            if part.request.finish:
                del self._streams[part.request.id]
        self._send(updates)

    def _send(self, updates: list[tuple[Stream, Update]]) -> None:
        """One call into the event loop a step, however many requests it had."""
        if updates and self._event_loop and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(_deliver, updates)


def _deliver(updates: list[tuple[Stream, Update]]) -> None:
    for stream, update in updates:
        stream.updates.put_nowait(update)


def monotonic() -> float:
    """The engine's clock, in seconds."""
    return time.monotonic()
