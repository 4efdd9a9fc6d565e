"""The side that faces clients: bytes in, whole requests out, answers written back under back-pressure.

One connection serves one request at a time; what a pipelining client sends ahead waits, bounded.
"""

import asyncio
import socket
import struct
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, cast

import httptools

from tokenpool_router.errors import BAD_REQUEST, INTERNAL, TIMED_OUT, Refusal, body_too_large, headers_too_large
from tokenpool_router.messages import Request, first
from tokenpool_router.responder import Responder

HEADER_BYTES: Final = 64 << 10
BODY_BYTES: Final = 8 << 20
# How long a request may take to arrive, and a connection may be idle.
ARRIVAL_SECONDS: Final = 60.0
# How long a client may leave what was sent to it unread. It holds a shard's stream all that time.
UNREAD_SECONDS: Final = 300.0
# After an early refusal the client may still be sending; closing at once would reset it before it reads the answer.
LINGER_SECONDS: Final = 2.0
MAX_PIPELINED: Final = 8
RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)

Handler = Callable[[Request, Responder], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Limits:
    """Bounds of a request and of its client's patience."""

    header_bytes: int = HEADER_BYTES
    body_bytes: int = BODY_BYTES
    arrival_seconds: float = ARRIVAL_SECONDS
    unread_seconds: float = UNREAD_SECONDS


class ClientConnection(asyncio.Protocol):
    """One TCP connection of a client."""

    def __init__(self, handler: Handler, connections: set["ClientConnection"], limits: Limits) -> None:
        self._handler, self._connections, self._limits = handler, connections, limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._ready: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._responder: Responder | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._last_word: Refusal | None = None
        self.closing = False
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended."""
        self._reset()

    def _reset(self) -> None:
        self._url, self._headers, self._body = b"", cast("list[tuple[bytes, bytes]]", []), bytearray()
        self._head_bytes, self._bytes_since_body, self._in_head, self._owes_continue = 0, 0, True, False

    # --- the transport's calls -------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; so is the reason to go on."""
        self._connections.discard(self)
        self.gone.set_result(None)
        self._stop_timer()
        self._stop_unread_timer()
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse; refuse what is too large before more of it is read."""
        if self._refused:
            return
        self._bytes_since_body += len(data)
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError:
            # A callback refused the request and said so; anything else is a bug.
            if not self._refused:
                raise
        except httptools.HttpParserError:
            self._refuse_early(BAD_REQUEST)
        else:
            # The parser itself would gather a header, or a trailer after a chunked body, without end.
            if self._bytes_since_body > self._limits.header_bytes:
                self._refuse_early(headers_too_large(self._limits.header_bytes))

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                self._decline_upgrade()

    def _decline_upgrade(self) -> None:
        """Read a request that offers another protocol as the HTTP/1.1 that it is; some clients offer one each time.

        To the parser the request ends with its head, and a body belongs to the other protocol. So a new parser starts.
        """
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        lines += [b"%b: %b" % (name, value) for name, value in self._headers if name != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        head_bytes = self._head_bytes
        self._reset()
        self._head_bytes = head_bytes
        self._parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")

    def eof_received(self) -> bool:
        """The client closed its side; like any HTTP server we take that as gone."""
        return False

    def pause_writing(self) -> None:
        """The client reads slower than the shard writes."""
        self._unread_timer = self._loop.call_later(self._limits.unread_seconds, self._transport.abort)
        if self._responder:
            self._responder.pause(True)

    def resume_writing(self) -> None:
        """The client caught up."""
        self._stop_unread_timer()
        if self._responder:
            self._responder.pause(False)
        self._serve_next()

    # --- the parser's calls ----------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """The first byte of a request: it has its full time from here, however long the client was idle before."""
        if self._task is None:
            self._expect_request()

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Trailers are dropped: they come too late to be one."""
        if self._in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Everything that can be refused without the body is refused here."""
        if self._parser.get_method() == b"CONNECT":
            self._stop_parsing(BAD_REQUEST)
        if self._parser.should_upgrade():
            return
        self._in_head = False
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self._limits.header_bytes:
            self._stop_parsing(headers_too_large(self._limits.header_bytes))
        headers, version = dict(self._headers), self._parser.get_http_version()
        if version not in ("1.0", "1.1") or (b"transfer-encoding" in headers and not _is_chunked(self._headers)):
            self._stop_parsing(BAD_REQUEST)
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            self._stop_parsing(body_too_large(self._limits.body_bytes))
        if version == "1.1" and headers.get(b"expect", b"").lower() == b"100-continue":
            self._owes_continue = True
            self._send_continue()

    def _send_continue(self) -> None:
        """Ask for the body that a client holds back, but not in the middle of an earlier answer."""
        if self._owes_continue and self._task is None and not self._ready:
            self._owes_continue = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        if len(self._body) + len(data) > self._limits.body_bytes:
            self._stop_parsing(body_too_large(self._limits.body_bytes))
        self._body += data
        self._bytes_since_body = 0

    def on_message_complete(self) -> None:
        """A whole request."""
        if self._parser.should_upgrade():
            return
        headers = tuple(self._headers)
        given = first(headers, b"x-request-id") or b""
        request = Request(
            method=self._parser.get_method(),
            target=self._url,
            headers=headers,
            body=bytes(self._body),
            keep_alive=self._parser.should_keep_alive(),
            version=self._parser.get_http_version(),
            request_id=given[:128] or uuid.uuid4().hex.encode(),
        )
        self._reset()
        self._stop_timer()
        self._ready.append(request)
        if len(self._ready) > MAX_PIPELINED:
            self._transport.pause_reading()
        self._serve_next()

    # --- serving ---------------------------------------------------------------------------------------------------
    def _serve_next(self) -> None:
        # A client that does not read its last answer gets no further one: it would pile up here.
        if self._task is None and self._ready and self._unread_timer is None:
            request = self._ready.popleft()
            self._responder = Responder(self, request)
            self._task = self._loop.create_task(self._handler(request, self._responder))
            self._task.add_done_callback(self._served)

    def _served(self, task: "asyncio.Task[None]") -> None:
        responder, self._responder, self._task = self._responder, None, None
        error = None if task.cancelled() else task.exception()
        if error:
            self._loop.call_exception_handler({"message": "a request handler failed", "exception": error})
            self.closing = True
            if responder and not responder.started:
                responder.refuse(INTERNAL)
            else:
                self.abort()
        if task.cancelled() or self.closing or not responder or responder.close:
            self._close_gently()
            return
        if len(self._ready) <= MAX_PIPELINED and not self._transport.is_closing():
            self._transport.resume_reading()
        if self._ready:
            self._serve_next()
        elif self._last_word:
            self._say(self._last_word)
        else:
            self._send_continue()
            self._expect_request()

    def write(self, data: bytes) -> None:
        """Send bytes; a client that went away does not mind."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        """Break the connection with a reset: a plain close is a proper end to clients that know no chunks."""
        if not self._transport.is_closing():
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        self._transport.abort()

    def finish_up(self) -> None:
        """Shut down: at once when idle, else after the answer to what is here or on its way."""
        self.closing = True
        if not self.is_busy:
            self._transport.close()

    @property
    def is_busy(self) -> bool:
        """A request is being served or has begun to arrive, or an answer is not sent to its end."""
        return self._task is not None or self._head_bytes > 0 or self._transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        """The router stops: whoever waits for an answer is told so, anybody else is just left."""
        if self._task and self._responder:
            self._responder.is_cut = True
            self._task.cancel()
        elif self._transport.get_write_buffer_size() > 0:
            self.abort()
        else:
            self._transport.close()

    # --- refusing --------------------------------------------------------------------------------------------------
    def _stop_parsing(self, refusal: Refusal) -> None:
        """Refuse from inside a parser's call: the raised error ends the parsing of what is at hand."""
        self._refuse_early(refusal)
        raise ValueError(refusal.code)

    def _refuse_early(self, refusal: Refusal) -> None:
        """Answer before the request is whole, and stop listening to this client."""
        if self._refused:
            return
        self._refused = True
        if self._task is None and not self._ready:
            self._say(refusal)
        else:
            # Answers to earlier requests come first.
            self._last_word = refusal

    def _say(self, refusal: Refusal) -> None:
        self.write(refusal.head().to_client(chunked=False, close=True) + refusal.body())
        self._close_gently()

    def _close_gently(self) -> None:
        self._refused = True
        self._ready.clear()
        self._stop_timer()
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        """Close, and break the connection if the client does not even take what is left for it."""
        self._transport.close()
        self._timer = self._loop.call_later(self._limits.unread_seconds, self._transport.abort)

    # --- deadlines -------------------------------------------------------------------------------------------------
    def _expect_request(self) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(self._limits.arrival_seconds, self._arrival_late)

    def _arrival_late(self) -> None:
        if self._head_bytes:
            self._refuse_early(TIMED_OUT)
        else:
            self._hang_up()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _stop_unread_timer(self) -> None:
        if self._unread_timer:
            self._unread_timer.cancel()
            self._unread_timer = None


def _is_chunked(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the body comes in chunks and in no other encoding, which would have to be undone before it is sent on."""
    return all(value.strip().lower() == b"chunked" for name, value in headers if name == b"transfer-encoding")
