"""When is what told, heard and merged? Two loops with a connection each, so that a large merge delays no numbers."""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tokenpool_router.shared.door import Door, Unreachable
from tokenpool_router.shared.exchange import Exchange, Heard
from tokenpool_router.shared.keys import Keys
from tokenpool_router.shared.merging import Merging, do_work
from tokenpool_router.shared.messages import OwnNumbers, Pair
from tokenpool_router.shared.state import State
from tokenpool_router.shared.sums import Elsewhere, Sums
from tokenpool_router.shared.vocabulary import Outbox

log = logging.getLogger(__name__)
OnElsewhere = Callable[[Mapping[str, Pair], Mapping[str, Pair]], None]

BUSY_SECONDS: Final = 0.2
IDLE_SECONDS: Final = 1.0
BYTES_PER_SECOND: Final = 5_000_000  # many busy shards are told more rarely instead of filling a network
FADE_SECONDS: Final = 2.0
VOCABULARY_SECONDS: Final = 5.0
BATCHES_AT_A_TIME: Final = 8
FIRST_BACK_OFF_SECONDS: Final = 0.2
MOST_BACK_OFF_SECONDS: Final = 5.0


class SharedState:
    """This router's share in its pool's Redis.

    `url_file` holds a redis:// or rediss:// URL and may change; `pool_key` is namespace/name, `router_id` the pod's.
    `own` is asked before each exchange, `take_vocabulary` for the counts since it was asked last, only once the last
    ones are safe in Redis. `on_elsewhere` gets the other routers' sums after each exchange (see `Sums`), and faded ones
    when none has worked for FADE_SECONDS. All three are called from the loop that `run` runs on.
    """

    def __init__(
        self,
        url_file: Path,
        pool_key: str,
        router_id: str,
        *,
        on_elsewhere: OnElsewhere,
        own: Callable[[], OwnNumbers],
        take_vocabulary: Callable[[], Mapping[int, int]],
        vocabulary_seconds: float = VOCABULARY_SECONDS,
    ) -> None:
        born = secrets.token_hex(8)
        keys = Keys(pool_key)
        self._numbers_door, self._vocabulary_door = Door(url_file), Door(url_file)
        self._exchange = Exchange(self._numbers_door, keys, router_id, born)
        self._merging = Merging(self._vocabulary_door, keys, born)
        self._on_elsewhere = on_elsewhere
        self._own = own
        self._take_vocabulary = take_vocabulary
        self._vocabulary_seconds = vocabulary_seconds
        self._elsewhere = Elsewhere()
        self._outbox = Outbox()
        self._state = State()
        self._heard_at: float | None = None
        self._fade: asyncio.TimerHandle | None = None

    @property
    def state(self) -> State:
        """How it is going now."""
        age = None if self._heard_at is None else time.monotonic() - self._heard_at
        return replace(self._state, age_seconds=age)

    async def run(self) -> None:
        """Until cancelled; then the other routers are told that we are gone. Redis never makes it end."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(keep_at(self._tell_and_hear, self._failed_numbers), name="redis numbers")
                tasks.create_task(keep_at(self._count, self._failed_vocabulary), name="redis vocabulary")
        finally:
            await self._leave()

    async def _tell_and_hear(self) -> float:
        numbers = self._own()
        heard = await self._exchange.round(numbers)
        now = time.monotonic()
        self._heard_at = now
        self._note(heard)
        self._give(self._elsewhere.read(heard.published, now))
        self._fade_later()
        return pause_after(numbers, heard)

    def _note(self, heard: Heard) -> None:
        if not self._state.connected:
            log.info("redis: numbers are exchanged with %d other routers", len(heard.published))
        self._state = replace(
            self._state,
            connected=True,
            error="",
            routers=len(heard.published),
            routers_left_out=heard.left_out,
            unreadable=self._state.unreadable + heard.unreadable,
        )

    def _give(self, sums: Sums) -> None:
        self._on_elsewhere(sums.shards, sums.callers)

    def _fade_later(self) -> None:
        if self._fade is not None:
            self._fade.cancel()
        self._fade = asyncio.get_running_loop().call_later(FADE_SECONDS, self._fade_out)

    def _fade_out(self) -> None:
        self._fade = None
        self._state = replace(self._state, routers=0)
        self._give(self._elsewhere.faded())

    def _failed_numbers(self, text: str) -> None:
        if text != self._state.error:
            log.warning("redis: numbers are not exchanged: %s", text)
        self._state = replace(self._state, connected=False, error=text)

    async def _count(self) -> float:
        await self._send_batches()
        await self._merge()
        self._state = replace(self._state, vocabulary_error="")
        return self._vocabulary_seconds

    async def _send_batches(self) -> None:
        if self._outbox.batch() is None:
            self._outbox.put(self._take_vocabulary())
        for _ in range(BATCHES_AT_A_TIME):
            batch = self._outbox.batch()
            if batch is None or not await self._merging.send(self._outbox.sequence, batch):
                return
            self._outbox.arrived()
            self._state = replace(self._state, batches_sent=self._state.batches_sent + 1)

    async def _merge(self) -> None:
        work = await self._merging.begin()
        if work is None:
            return
        self._state = replace(self._state, holds_lock=True)
        try:
            merged = await asyncio.to_thread(do_work, work)
            is_written = await self._merging.commit(merged)
        finally:
            self._state = replace(self._state, holds_lock=False)
        self._state = replace(
            self._state,
            merges=self._state.merges + is_written,
            merges_refused=self._state.merges_refused + (not is_written),
            unreadable=self._state.unreadable + merged.unreadable,
        )

    def _failed_vocabulary(self, text: str) -> None:
        if text != self._state.vocabulary_error:
            log.warning("redis: the vocabulary is not counted: %s", text)
        self._state = replace(self._state, vocabulary_error=text)

    async def _leave(self) -> None:
        if self._fade is not None:
            self._fade.cancel()
        if self._state.connected:
            with contextlib.suppress(Unreachable):
                await self._exchange.leave()
        await self._numbers_door.close()
        await self._vocabulary_door.close()


async def keep_at(step: Callable[[], Awaitable[float]], failed: Callable[[str], None]) -> None:
    """Take steps for ever. Each says how long to wait before the next; failures in a row wait longer and longer."""
    failures = 0
    while True:
        try:
            pause = await step()
            failures = 0
        except Unreachable as error:
            failed(str(error))
            pause = back_off(failures)
            failures += 1
        await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311  not in step with the other routers


def back_off(failures: int) -> float:
    """Seconds to wait after that many earlier failures in a row: doubling, bounded, spread over a half."""
    longest = min(MOST_BACK_OFF_SECONDS, FIRST_BACK_OFF_SECONDS * 2.0 ** min(failures, 10))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311


def pause_after(numbers: OwnNumbers, heard: Heard) -> float:
    """Seconds until the next exchange: often while there is something to tell, more rarely the more bytes it takes."""
    is_busy = numbers.is_busy() or any(said.numbers.is_busy() for said in heard.published.values())
    shortest = BUSY_SECONDS if is_busy else IDLE_SECONDS
    return min(max(shortest, heard.bytes_moved / BYTES_PER_SECOND), IDLE_SECONDS)
