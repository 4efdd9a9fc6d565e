"""One client's connection: HTTP/1.1 with the parser in C, nothing decoded, each piece of a body kept with its time."""

import asyncio
import time
from typing import cast

import httptools

from engine_bench.answers import Recording

HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Accept: text/event-stream\r\nContent-Length: %d\r\n\r\n"
)


class Connection(asyncio.Protocol):
    """One request at a time. A connection that the server ends serves no further one: see `is_open`."""

    def __init__(self) -> None:
        self.is_open = False
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._recording: Recording | None = None
        self._ended: asyncio.Future[None] | None = None

    async def ask(self, body: bytes, recording: Recording, seconds: float) -> None:
        """Send a request and record its answer until the end; trouble is recorded too."""
        if self._transport is None:
            raise ConnectionError("asked before it was opened")
        self._parser = httptools.HttpResponseParser(self)
        self._recording, self._ended = recording, asyncio.get_running_loop().create_future()
        recording.sent = time.perf_counter()
        self._transport.write(HEAD % len(body) + body)
        try:
            async with asyncio.timeout(seconds):
                await self._ended
        except TimeoutError:
            recording.error = f"no whole answer within {seconds:.0f} s"
            self.close()

    def close(self) -> None:
        """Let go of the socket."""
        self.is_open = False
        if self._transport:
            self._transport.abort()

    # --- what asyncio calls ---
    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        # uvloop's transports do not say whose kind they are, so there is nothing to check.
        self._transport, self.is_open = cast("asyncio.Transport", transport), True

    def data_received(self, data: bytes) -> None:  # noqa: D102
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")
            self.close()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102
        self.is_open = False
        self._fail(f"the server ended the connection: {error or 'closed'}")

    # --- what the parser calls ---
    def on_headers_complete(self) -> None:  # noqa: D102
        if self._recording and self._parser:
            self._recording.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:  # noqa: D102
        if self._recording:
            self._recording.pieces.append((time.perf_counter(), piece))

    def on_message_complete(self) -> None:  # noqa: D102
        if self._parser and not self._parser.should_keep_alive():
            self.close()
        self._end()

    def _fail(self, why: str) -> None:
        if self._recording and self._ended and not self._ended.done():
            self._recording.error = why
        self._end()

    def _end(self) -> None:
        if self._ended and not self._ended.done():
            self._ended.set_result(None)


async def opened(port: int) -> Connection:
    """A connection to a server on this machine."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection
