"""The worker's end of the line to the control process: one JSON object a line, in both directions."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import orjson

Message = dict[str, Any]


class Link(asyncio.Protocol):
    """Reads messages and writes them. `gone` is done when the control process is."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._held = b""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The line is open."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Whole lines are messages."""
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            if line:
                self._on_message(orjson.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """The control process is gone, and with it all that tells this one what to do."""
        if not self.gone.done():
            self.gone.set_result(None)

    def send(self, message: Message) -> None:
        """Write a message."""
        if not self._transport.is_closing():
            self._transport.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        """Hang up, when what was written is sent."""
        self._transport.close()


async def connect(descriptor: int, on_message: Callable[[Message], None]) -> Link:
    """Take up the line that the control process left open for us."""
    line = socket.socket(fileno=descriptor)
    line.setblocking(False)
    _, link = await asyncio.get_running_loop().create_connection(lambda: Link(on_message), sock=line)
    return link
