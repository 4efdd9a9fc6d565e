"""The control process's end of the line to one worker: one JSON object a line, and reports that are asked for."""

import asyncio
import socket
from collections.abc import Callable
from itertools import count
from typing import Any, Final, cast

import orjson

Message = dict[str, Any]
REPORT_SECONDS: Final = 1.0


class Line(asyncio.Protocol):
    """Messages to the worker, and what it says.

    `on_report` and `on_spans` get what the worker says, also what it says late. A worker that says what cannot be
    understood loses its line, and so ends: one worker's nonsense must not end all of them.
    """

    def __init__(self, on_report: Callable[[Message], None], on_spans: Callable[[list[Message]], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_report, self._on_spans = on_report, on_spans
        self._held = bytearray()
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[None]] = {}
        self.listening: asyncio.Future[int] = loop.create_future()
        """The port, once the worker takes clients."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when all that the worker ever said is read."""
        self.heard_at = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The line is open."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Whole lines are messages. What this raises closes the line, and is logged by the loop."""
        self.heard_at = asyncio.get_running_loop().time()
        self._held += data
        if b"\n" not in data:
            return
        *lines, self._held = self._held.split(b"\n")
        for line in lines:
            if line:
                self._heard(orjson.loads(bytes(line)))

    def _heard(self, message: Message) -> None:
        match message["kind"]:
            case "report":
                self._on_report(message)
                asked = self._asked.get(message["id"])
                if asked and not asked.done():
                    asked.set_result(None)
            case "listening":
                if not self.listening.done():
                    self.listening.set_result(message["port"])
            case "spans":
                self._on_spans(message["spans"])

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker is gone."""
        self.listening.cancel()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, message: Message) -> None:
        """Tell the worker something. One that is gone does not mind."""
        if not self._transport.is_closing():
            self._transport.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    async def ask(self) -> None:
        """Have the worker report. Returns when it has, or when it does not in time."""
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({"kind": "report", "id": number})
        try:
            if not self.closed.done():
                await asyncio.wait({asked}, timeout=REPORT_SECONDS)
        finally:
            del self._asked[number]

    def close(self) -> None:
        """Hang up: a worker that hears nobody ends."""
        self._transport.abort()


async def open_line(
    on_report: Callable[[Message], None], on_spans: Callable[[list[Message]], None]
) -> tuple[Line, socket.socket]:
    """A line, and the end of it that the worker is to get."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    _, line = await asyncio.get_running_loop().create_connection(lambda: Line(on_report, on_spans), sock=ours)
    return line, theirs
