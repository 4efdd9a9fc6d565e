"""The side that faces shards: kept-alive connections, one exchange at a time on each."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools

from tokenpool_router.http.messages import ResponseHead, lower_name

# Less than the shard's own idle limit, so that no request goes to a connection that the shard is about to close.
IDLE_SECONDS: Final = 20.0
IDLE_PER_SHARD: Final = 256


class Listener(Protocol):
    """Who sent a request, and gets its answer."""

    def on_head(self, head: ResponseHead) -> None:
        """Status and headers are here."""

    def on_answer(self, data: bytes, ended: bool) -> None:
        """A part of the body, maybe an empty one; after the one that `ended` there is nothing more."""

    def on_lost(self, answered: bool) -> None:
        """The connection ended before the answer was whole. `answered`: some of it had come."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to a shard. `exchange` sends a request; the listener hears what comes."""

    __slots__ = (
        "_answered",
        "_complete",
        "_fresh_head",
        "_head_only",
        "_headers",
        "_listener",
        "_loop",
        "_parser",
        "_parts",
        "_reason",
        "_until_close",
        "heard_at",
        "reusable",
        "transport",
        "used",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._listener: Listener | None = None
        self._fresh_head: ResponseHead | None = None
        self._parts: list[bytes] = []
        self._reset()
        self.used = False
        """There was an exchange on it before."""
        self.reusable = False
        self.heard_at = self._loop.time()
        """When the shard last said something, or was asked; on the loop's clock."""

    def _reset(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._answered = self._complete = self._until_close = self._head_only = False

    def exchange(self, request: bytes, listener: Listener, *, head_only: bool) -> None:
        """Send one request. A connection that ended meanwhile says so later, as one that ends in the exchange."""
        self._reset()
        self._head_only, self.reusable = head_only, False
        self.heard_at = self._loop.time()
        self._listener = listener
        if self.transport.is_closing():
            self._loop.call_soon(self.connection_lost, None)
        else:
            self.transport.write(request)

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
        """Close now, unheard; the shard takes that as the client's leaving."""
        self._listener = None
        self.reusable = False
        self.transport.abort()

    # --- the transport's calls -------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The shard closed, or the network did."""
        self.reusable = False
        listener, self._listener = self._listener, None
        if listener:
            listener.on_lost(self._answered)

    def data_received(self, data: bytes) -> None:
        """A part of the answer. Data without a request makes the connection useless."""
        self.heard_at = self._loop.time()
        if self._listener is None:
            self.close()
            return
        self._answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            # What follows a whole answer is no part of it.
            self._fail_parsing() if not self._complete else self._tell_last()
        else:
            self._tell()

    def _tell_last(self) -> None:
        self.reusable = False
        self._tell()

    def _fail_parsing(self) -> None:
        listener, self._listener = self._listener, None
        self.close()
        if listener:
            listener.on_lost(True)

    def eof_received(self) -> bool:
        """An answer without a length ends with the connection; llhttp needs no more than the close."""
        if self._until_close and self._answered:
            self._complete = True
            self._tell()
        return False

    def _tell(self) -> None:
        """Everything of one read is told at once. The listener may close this connection at any of it."""
        listener, head = self._listener, self._fresh_head
        if listener is None:
            return
        if head:
            self._fresh_head = None
            listener.on_head(head)
            if self._listener is not listener:
                self._parts.clear()
                return
        ended, parts = self._complete, self._parts
        if not parts and not ended:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if ended:
            self._listener = None
        listener.on_answer(data, ended)

    # --- the parser's calls ----------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """An answer begins. One that nobody asked for makes the connection useless."""
        if self._complete:
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        """A part of the reason phrase."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((lower_name(name), value))

    def on_headers_complete(self) -> None:
        """Status and headers are whole."""
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._headers, self._reason = [], b""
            return
        headers = dict(self._headers)
        length = int(headers[b"content-length"]) if b"content-length" in headers else None
        self._until_close = length is None and b"chunked" not in headers.get(b"transfer-encoding", b"")
        if status in (204, 304):
            length, self._until_close = 0, False
        self._fresh_head = ResponseHead(status, self._reason, tuple(self._headers), length, headers)
        self._headers = []
        if self._head_only:
            # The parser would wait for a body that a HEAD's answer does not have; the connection is not used again.
            self._complete = True

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        if not self._complete:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._parser.get_status_code() >= 200 and not self._complete:
            self._complete = True
            self.reusable = self._parser.should_keep_alive() and not self.transport.is_closing()


class Pool:
    """Idle connections by address."""

    def __init__(self, connect_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._idle: defaultdict[str, deque[UpstreamConnection]] = defaultdict(deque)
        """The longest idle first; the last one is used first."""

    def take(self, address: str, now: float) -> UpstreamConnection | None:
        """An idle connection to "host:port", if there is one that the shard still keeps."""
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if _is_usable(connection, now):
                connection.used = True
                return connection
            connection.close()
        return None

    def open(
        self, address: str, opened: Callable[[UpstreamConnection], None], failed: Callable[[], None]
    ) -> "asyncio.Task[UpstreamConnection]":
        """Connect anew. Whoever cancels the task hears nothing more."""
        task = asyncio.get_running_loop().create_task(self._connect(address))

        def done(task: "asyncio.Task[UpstreamConnection]") -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                opened(task.result())
            elif isinstance(error, OSError):
                failed()
            else:
                raise error

        task.add_done_callback(done)
        return task

    async def _connect(self, address: str) -> UpstreamConnection:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(self._connect_seconds):
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(UpstreamConnection, host.strip("[]"), int(port))
        return connection

    def give_back(self, address: str, connection: UpstreamConnection, now: float) -> None:
        """Keep it for the next request if it can be used again."""
        idle = self._idle[address]
        while idle and not _is_usable(idle[0], now):
            idle.popleft().close()
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
