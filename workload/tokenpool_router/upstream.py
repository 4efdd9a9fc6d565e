"""The side that faces shards: kept-alive connections, one exchange at a time on each."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, cast

import httptools

from tokenpool_router.messages import ResponseHead

# Less than the shard's own idle limit, so that no request goes to a connection that the shard is about to close.
IDLE_SECONDS: Final = 20.0
IDLE_PER_SHARD: Final = 256


class UpstreamLost(Exception):
    """The connection ended before the answer was whole. `answered`: some of the answer had come."""

    def __init__(self, message: str, *, answered: bool) -> None:
        super().__init__(message)
        self.answered = answered


class UpstreamConnection(asyncio.Protocol):
    """One connection to a shard. `exchange` sends a request and calls back as the answer comes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] | None = None
        self._on_head: Callable[[ResponseHead], None] | None = None
        self._on_body: Callable[[bytes], None] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._head_only = False
        self._answered = False
        self.used = False
        self.reusable = False
        self.heard_at = self._loop.time()
        """When the shard last said something, or was asked; on the loop's clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The shard closed, or the network did."""
        self.reusable = False
        if self._done and not self._done.done():
            reason = str(exc) if exc else "closed by the shard"
            self._done.set_exception(UpstreamLost(reason, answered=self._answered))

    def data_received(self, data: bytes) -> None:
        """A part of the answer. Data without a request makes the connection useless."""
        self.heard_at = self._loop.time()
        if not self._done or self._done.done():
            self.close()
            return
        self._answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the shard's answer is not valid HTTP: {error}")

    def eof_received(self) -> bool:
        """An answer without a length ends with the connection; llhttp needs no more than the close."""
        if self._done and not self._done.done() and self._answered and self._until_close:
            self._done.set_result(None)
        return False

    async def exchange(
        self,
        request: bytes,
        on_head: Callable[[ResponseHead], None],
        on_body: Callable[[bytes], None],
        *,
        head_only: bool,
    ) -> None:
        """Send one request and return when its answer is whole. Raises UpstreamLost."""
        self._parser = httptools.HttpResponseParser(self)
        self._on_head, self._on_body, self._head_only = on_head, on_body, head_only
        self._headers, self._reason, self._answered, self._until_close = [], b"", False, False
        self.reusable = False
        self.heard_at = self._loop.time()
        if self.transport.is_closing():
            raise UpstreamLost("closed by the shard", answered=False)
        self._done = self._loop.create_future()
        self.transport.write(request)
        await self._done

    def pause(self, paused: bool) -> None:
        """Stop or go on reading: the client sets the pace."""
        if self.transport.is_closing():
            return
        if paused:
            self.transport.pause_reading()
        else:
            # The silence until now was the client's, not the shard's.
            self.heard_at = self._loop.time()
            self.transport.resume_reading()

    def close(self) -> None:
        """Close now; the shard takes that as the client's leaving."""
        self.reusable = False
        self.transport.abort()

    # --- the parser's calls ----------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """An answer begins. One that nobody asked for makes the connection useless."""
        if self._done and self._done.done():
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        """A part of the reason phrase."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Status and headers are whole."""
        status = self._parser.get_status_code()
        if not self._done or self._done.done():
            return
        if status < 200:
            self._headers, self._reason = [], b""
            return
        headers = dict(self._headers)
        length = int(headers[b"content-length"]) if b"content-length" in headers else None
        self._until_close = length is None and b"chunked" not in headers.get(b"transfer-encoding", b"")
        if status in (204, 304):
            length, self._until_close = 0, False
        if self._on_head:
            self._on_head(ResponseHead(status, self._reason, tuple(self._headers), length))
        if self._head_only:
            # The parser would wait for a body that a HEAD's answer does not have; the connection is not used again.
            self._complete(reusable=False)

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        if self._on_body and self._done and not self._done.done():
            self._on_body(data)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._parser.get_status_code() >= 200:
            self._complete(reusable=self._parser.should_keep_alive())

    def _complete(self, *, reusable: bool) -> None:
        if self._done and not self._done.done():
            self.reusable = reusable and not self.transport.is_closing()
            self._done.set_result(None)

    def _fail(self, message: str) -> None:
        if self._done and not self._done.done():
            self._done.set_exception(UpstreamLost(message, answered=True))
        self.close()


class Pool:
    """Idle connections by address."""

    def __init__(self, connect_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._idle: defaultdict[str, deque[UpstreamConnection]] = defaultdict(deque)
        """The longest idle first; the last one is used first."""

    async def connect(self, address: str, *, fresh: bool = False) -> UpstreamConnection:
        """A connection to "host:port", an idle one unless `fresh`. Raises OSError (TimeoutError is one)."""
        loop = asyncio.get_running_loop()
        idle = self._idle[address]
        while idle and not fresh:
            connection = idle.pop()
            if _is_usable(connection, loop.time()):
                connection.used, connection.heard_at = True, loop.time()
                return connection
            connection.close()
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(self._connect_seconds):
            _, connection = await loop.create_connection(UpstreamConnection, host.strip("[]"), int(port))
        return connection

    def give_back(self, address: str, connection: UpstreamConnection) -> None:
        """Keep it for the next request if it can be used again."""
        idle, now = self._idle[address], asyncio.get_running_loop().time()
        while idle and not _is_usable(idle[0], now):
            idle.popleft().close()
        # The client of the last answer may have been slow; the next one is not to wait for it.
        connection.pause(False)
        if connection.reusable and len(idle) < IDLE_PER_SHARD:
            idle.append(connection)
        else:
            connection.close()

    def keep_only(self, addresses: set[str]) -> None:
        """Close the idle connections to shards that left."""
        for address in [address for address in self._idle if address not in addresses]:
            for connection in self._idle.pop(address):
                connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        self.keep_only(set())


def _is_usable(connection: UpstreamConnection, now: float) -> bool:
    return not connection.transport.is_closing() and now - connection.heard_at < IDLE_SECONDS
