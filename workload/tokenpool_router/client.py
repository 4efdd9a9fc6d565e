"""The side that faces clients: bytes in, whole requests out, answers written back under back-pressure.

One connection serves one request at a time; what a pipelining client sends ahead waits, bounded.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

import httptools

from tokenpool_router.errors import BAD_REQUEST, TIMED_OUT, Refusal, body_too_large, headers_too_large
from tokenpool_router.messages import Request
from tokenpool_router.responder import Responder

HEADER_BYTES: Final = 64 << 10
BODY_BYTES: Final = 8 << 20
# How long a request may take to arrive, and a connection may be idle.
ARRIVAL_SECONDS: Final = 60.0
# After an early refusal the client may still be sending; closing at once would reset it before it reads the answer.
LINGER_SECONDS: Final = 2.0
MAX_PIPELINED: Final = 8

Handler = Callable[[Request, Responder], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """Bounds of a request."""

    header_bytes: int = HEADER_BYTES
    body_bytes: int = BODY_BYTES
    arrival_seconds: float = ARRIVAL_SECONDS


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
        self._refused = False
        self._upgrade = False
        self.closing = False
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended."""
        self._reset()

    def _reset(self) -> None:
        self._url, self._headers, self._body = b"", cast("list[tuple[bytes, bytes]]", []), bytearray()
        self._head_bytes, self._in_head = 0, True

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
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse; refuse what is too large before more of it is read."""
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The protocol stays HTTP/1.1, as a server may decide; what follows is not for this parser, so we close.
            self._refused = self.closing = True
        except httptools.HttpParserCallbackError:
            # A callback refused the request and said so.
            return
        except httptools.HttpParserError:
            self._refuse_early(BAD_REQUEST)
        else:
            if self._in_head and self._head_bytes > self._limits.header_bytes:
                self._refuse_early(headers_too_large(self._limits.header_bytes))

    def eof_received(self) -> bool:
        """The client closed its side; like any HTTP server we take that as gone."""
        return False

    def pause_writing(self) -> None:
        """The client reads slower than the shard writes."""
        if self._responder:
            self._responder.pause(True)

    def resume_writing(self) -> None:
        """The client caught up."""
        if self._responder:
            self._responder.pause(False)

    # --- the parser's calls ----------------------------------------------------------------------------------------
    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Everything that can be refused without the body is refused here."""
        self._in_head = False
        if sum(len(name) + len(value) + 4 for name, value in self._headers) > self._limits.header_bytes:
            self._stop_parsing(headers_too_large(self._limits.header_bytes))
        headers = dict(self._headers)
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            self._stop_parsing(body_too_large(self._limits.body_bytes))
        if headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        if len(self._body) + len(data) > self._limits.body_bytes:
            self._stop_parsing(body_too_large(self._limits.body_bytes))
        self._body += data

    def on_message_complete(self) -> None:
        """A whole request."""
        headers = tuple(self._headers)
        given = next((value for name, value in headers if name == b"x-request-id"), b"")
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
        if self._task is None and self._ready:
            request = self._ready.popleft()
            self._task = self._loop.create_task(self._serve(request))
            self._task.add_done_callback(self._served)

    async def _serve(self, request: Request) -> None:
        self._responder = Responder(self, request)
        await self._handler(request, self._responder)

    def _served(self, task: "asyncio.Task[None]") -> None:
        responder, self._responder, self._task = self._responder, None, None
        if task.cancelled() or task.exception() or self.closing or not responder or responder.close:
            self._close_gently()
            if not task.cancelled() and (error := task.exception()):
                self._loop.call_exception_handler({"message": "a request handler failed", "exception": error})
            return
        if len(self._ready) <= MAX_PIPELINED and not self._transport.is_closing():
            self._transport.resume_reading()
        if self._ready:
            self._serve_next()
        else:
            self._expect_request()

    def write(self, data: bytes) -> None:
        """Send bytes; a client that went away does not mind."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        """Break the connection."""
        self._transport.abort()

    def finish_up(self) -> None:
        """Shut down: at once when idle, else after the present answer."""
        self.closing = True
        if self._task is None:
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
        if self._task is None:
            self.write(refusal.head().to_client(chunked=False, close=True) + refusal.body())
            self._close_gently()
        else:
            # The answer to an earlier request is under way; a second one must not be mixed into it.
            self.closing = True

    def _close_gently(self) -> None:
        self._refused = True
        self._stop_timer()
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.close)

    # --- deadlines -------------------------------------------------------------------------------------------------
    def _expect_request(self) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(self._limits.arrival_seconds, self._arrival_late)

    def _arrival_late(self) -> None:
        if self._head_bytes:
            self._refuse_early(TIMED_OUT)
        else:
            self._transport.close()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
