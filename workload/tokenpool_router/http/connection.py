"""One TCP connection of a client: requests are served one after the other, answers go out under back-pressure.

What a pipelining client sends ahead waits, bounded. Nothing here has a timer: `sweep` is called every now and then.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from math import inf
from typing import Final, Protocol, cast

from tokenpool_router.http.messages import Request
from tokenpool_router.http.reader import Limits, RequestReader
from tokenpool_router.http.refusals import TIMED_OUT, Refusal
from tokenpool_router.http.responder import Responder

# After an early refusal the client may still be sending; closing at once would reset it before it reads the answer.
LINGER_SECONDS: Final = 2.0
MAX_PIPELINED: Final = 8
RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


class Service(Protocol):
    """What answers one request, through its responder."""

    def client_gone(self) -> None:
        """Nobody wants the answer any more."""

    def cut(self) -> None:
        """The router stops: end the answer now, and say so."""

    def pause(self, paused: bool) -> None:
        """The client is slow to read (True) or caught up (False)."""


Serve = Callable[[Responder], Service | None]
"""Begins to answer the responder's request; None when it has answered already. Never raises."""


class ClientConnection(asyncio.Protocol):
    """Talks to one client. Hands whole requests to `serve`."""

    __slots__ = (
        "_connections",
        "_due",
        "_gone",
        "_last_word",
        "_limits",
        "_loop",
        "_lost",
        "_on_due",
        "_owes_continue",
        "_reader",
        "_ready",
        "_responder",
        "_serve",
        "_service",
        "_serving",
        "_transport",
        "_unread_due",
        "closing",
    )

    def __init__(self, serve: Serve, connections: set["ClientConnection"], limits: Limits) -> None:
        self._serve, self._connections, self._limits = serve, connections, limits
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self, limits)
        self._ready: list[Request] = []
        self._responder: Responder | None = None
        self._service: Service | None = None
        self._serving = False
        self._due, self._unread_due = inf, inf
        self._on_due: Callable[[], None] = self._arrival_late
        self._last_word: Refusal | None = None
        self._owes_continue = False
        self._lost = False
        self.closing = False
        self._gone: asyncio.Future[None] | None = None

    # --- the transport's calls -------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; so is the reason to go on."""
        self._connections.discard(self)
        self._lost = True
        self._due = self._unread_due = inf
        if self._gone:
            self._gone.set_result(None)
        service, self._service = self._service, None
        if service:
            service.client_gone()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._reader.feed(data)

    def eof_received(self) -> bool:
        """The client closed its side; like any HTTP server we take that as gone."""
        return False

    def pause_writing(self) -> None:
        """The client reads slower than the shard writes."""
        self._unread_due = self._loop.time() + self._limits.unread_seconds
        if self._service:
            self._service.pause(True)

    def resume_writing(self) -> None:
        """The client caught up."""
        self._unread_due = inf
        if self._service:
            self._service.pause(False)
        self._serve_next()

    # --- the reader's calls ----------------------------------------------------------------------------------------
    def request_begins(self) -> None:
        """A request has its full time from here, however long the client was idle before."""
        if self._responder is None:
            self._expect_request()

    def request_waits(self) -> None:
        """A client holds its body back until it is asked for it."""
        self._owes_continue = True
        self._send_continue()

    def request_read(self, request: Request) -> None:
        """A whole request."""
        self._due = inf
        self._owes_continue = False
        self._ready.append(request)
        if len(self._ready) > MAX_PIPELINED:
            self._transport.pause_reading()
        self._serve_next()

    def request_refused(self, refusal: Refusal) -> None:
        """Answer before the request is whole, and stop listening to this client."""
        if self._responder is None and not self._ready:
            self._say(refusal)
        else:
            # Answers to earlier requests come first.
            self._last_word = refusal

    # --- serving ---------------------------------------------------------------------------------------------------
    def _serve_next(self) -> None:
        """Serve what is ready, until a request takes its time. An answer that is given at once ends inside the loop."""
        if self._serving:
            return
        self._serving = True
        # A client that does not read its last answer gets no further one: it would pile up here.
        while self._responder is None and self._ready and self._unread_due == inf:
            responder = self._responder = Responder(self, self._ready.pop(0))
            service = self._serve(responder)
            if self._responder is responder:
                self._service = service
        self._serving = False

    def answered(self) -> None:
        """The answer is at its end; the next one may begin."""
        responder, self._responder, self._service = self._responder, None, None
        if self._lost:
            return
        if self.closing or not responder or responder.close:
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

    def _send_continue(self) -> None:
        """Ask for the body that a client holds back, but not in the middle of an earlier answer."""
        if self._owes_continue and self._responder is None and not self._ready:
            self._owes_continue = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def write(self, data: bytes) -> None:
        """Send bytes; a client that went away does not mind."""
        if not self._transport.is_closing():
            self._transport.write(data)

    # --- ending ----------------------------------------------------------------------------------------------------
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
        return (
            self._responder is not None
            or self._reader.head_bytes > 0
            or (not self._lost and self._transport.get_write_buffer_size() > 0)
        )

    def cut(self) -> None:
        """The router stops: whoever waits for an answer is told so, anybody else is just left."""
        if self._service:
            self.closing = True
            self._service.cut()
        elif self._transport.get_write_buffer_size() > 0:
            self.abort()
        else:
            self._transport.close()

    def _say(self, refusal: Refusal) -> None:
        self.write(refusal.head().to_client(chunked=False, close=True) + refusal.body())
        self._close_gently()

    def _close_gently(self) -> None:
        self._reader.refused = True
        self._ready.clear()
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._due, self._on_due = self._loop.time() + LINGER_SECONDS, self._hang_up

    def _hang_up(self) -> None:
        """Close, and break the connection if the client does not even take what is left for it."""
        self._transport.close()
        self._due, self._on_due = self._loop.time() + self._limits.unread_seconds, self._transport.abort

    def gone(self) -> "asyncio.Future[None]":
        """Done when the connection has ended."""
        if self._gone is None:
            self._gone = self._loop.create_future()
            if self._lost:
                self._gone.set_result(None)
        return self._gone

    # --- deadlines -------------------------------------------------------------------------------------------------
    def sweep(self, now: float) -> None:
        """Do what is due."""
        if now >= self._due:
            self._due = inf
            self._on_due()
        if now >= self._unread_due:
            self._unread_due = inf
            self._transport.abort()

    def _expect_request(self) -> None:
        self._due, self._on_due = self._loop.time() + self._limits.arrival_seconds, self._arrival_late

    def _arrival_late(self) -> None:
        if self._reader.head_bytes:
            self._reader.refused = True
            self.request_refused(TIMED_OUT)
        else:
            self._hang_up()
