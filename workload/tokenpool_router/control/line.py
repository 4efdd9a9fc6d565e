"""The control process's end of the line to one worker: one JSON object a line, and reports that are asked for."""

import asyncio
import socket
from itertools import count
from typing import Any, Final, cast

import orjson

Message = dict[str, Any]
REPORT_SECONDS: Final = 1.0


class Line(asyncio.Protocol):
    """Messages to the worker, and what it says."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._held = bytearray()
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self.listening: asyncio.Future[int] = loop.create_future()
        """The port, once the worker takes clients."""
        self.spans: list[Message] = []
        """What the worker wants to be told to a tracing collector."""
        self.heard_at = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The line is open."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Whole lines are messages."""
        self.heard_at = asyncio.get_running_loop().time()
        self._held += data
        *lines, rest = self._held.split(b"\n")
        self._held = rest
        for line in lines:
            if line:
                self._heard(orjson.loads(bytes(line)))

    def _heard(self, message: Message) -> None:
        match message["kind"]:
            case "report":
                asked = self._asked.pop(message["id"], None)
                if asked and not asked.done():
                    asked.set_result(message)
            case "listening":
                if not self.listening.done():
                    self.listening.set_result(message["port"])
            case "spans":
                self.spans += message["spans"]

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker is gone."""
        self.listening.cancel()
        for asked in self._asked.values():
            asked.cancel()
        self._asked.clear()

    def send(self, message: Message) -> None:
        """Tell the worker something. One that is gone does not mind."""
        if not self._transport.is_closing():
            self._transport.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    async def report(self) -> Message | None:
        """What the worker has done so far; None when it does not say so in time."""
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({"kind": "report", "id": number})
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                answer: Message = await asked
                return answer
        except (TimeoutError, asyncio.CancelledError):
            if asked.cancelled() or not asked.done():
                self._asked.pop(number, None)
            current = asyncio.current_task()
            if current and current.cancelling():
                raise
            return None

    def close(self) -> None:
        """Hang up: a worker that hears nobody ends."""
        self._transport.abort()


async def open_line() -> tuple[Line, socket.socket]:
    """A line, and the end of it that the worker is to get."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    _, line = await asyncio.get_running_loop().create_connection(Line, sock=ours)
    return line, theirs
