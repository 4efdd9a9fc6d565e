"""The clients: they count whole answers only, and whatever else comes back is an error."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from router_bench import wire


class WrongAnswer(RuntimeError):
    """Something else came back than what the shards sent."""


@dataclass
class Tally:
    """What a run of clients saw."""

    answers: int = 0
    events: int = 0
    first_seconds: list[float] = field(default_factory=list)
    wrong: str = ""


class Client(asyncio.Protocol):
    """One connection, one request at a time, the next as soon as the last is whole and `goes_on`."""

    def __init__(self, tally: Tally, kind: str, events: int, goes_on: Callable[[], bool], pause: float = 0.0) -> None:
        self._tally, self._request, self._events = tally, wire.request(kind=kind), events
        self._goes_on, self._pause = goes_on, pause
        self._held = b""
        self._asked_at = 0.0
        self._has_first = False
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        if not self._transport.is_closing():
            self._held, self._has_first, self._asked_at = b"", False, time.perf_counter()
            self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """A part of the answer."""
        if not self._has_first and b"data: " in data:
            self._has_first = True
            self._tally.first_seconds.append(time.perf_counter() - self._asked_at)
            if not self.first.done():
                self.first.set_result(None)
        self._held += data
        if self._held.endswith(wire.LAST):
            self._check()

    def _check(self) -> None:
        answer, tally = self._held, self._tally
        # LiteLLM adds an event to an answer that does not say why it ends.
        wanted = (self._events, self._events + 1)
        if not answer.startswith(b"HTTP/1.1 200 ") or answer.count(b"data: ") not in wanted or wire.DONE not in answer:
            tally.wrong = answer[:400].decode(errors="replace")
        if b"\n:1234" in answer:
            tally.wrong = "token ids that were for the router"
        tally.answers += 1
        tally.events += self._events
        if not self._goes_on():
            if not self.done.done():
                self.done.set_result(None)
        elif self._pause:
            asyncio.get_running_loop().call_later(self._pause, self._ask)
        else:
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy closed: some do so after a number of requests, but never in the middle of one."""
        if not self.done.done():
            if self._held:
                self._tally.wrong = self._tally.wrong or f"closed within an answer: {self._held[:200]!r}"
            self.done.set_result(None)
        if not self.first.done():
            self.first.set_result(None)

    def close(self) -> None:
        """Leave."""
        self._transport.abort()


def checked(tally: Tally) -> Tally:
    """Raises WrongAnswer."""
    if tally.wrong:
        raise WrongAnswer(tally.wrong)
    return tally
