"""One answer to a client: status line, body in the framing that the client understands, and its end."""

from collections.abc import Callable
from typing import Protocol

from tokenpool_router.errors import Refusal
from tokenpool_router.messages import LAST_CHUNK, Request, ResponseHead, chunk


class Connection(Protocol):
    """What an answer needs of the connection that it goes out on."""

    closing: bool
    """Whether no further request is taken on it."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def abort(self) -> None:
        """Break the connection."""


class Responder:
    """Writes one answer. The status line goes out with `start`; after that an answer can only be ended."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection, self._request = connection, request
        self._chunked = False
        self._has_body = request.method != b"HEAD"
        self.started = False
        self.status = 0
        self.close = not request.keep_alive
        self.is_cut = False
        """The handler is cancelled because the router stops, not because the client left: the client is to be told."""
        self.is_paused = False
        self.on_pause: Callable[[bool], None] | None = None
        """Called with True when the client is slow to read and with False when it caught up."""

    def start(self, head: ResponseHead) -> None:
        """Send status and headers."""
        self.started = True
        self.status = head.status
        self._chunked = head.length is None and self._request.version == "1.1" and self._has_body
        # Without a length and without chunks only the connection's end tells the body's end.
        self.close = self.close or self._connection.closing or (head.length is None and not self._chunked)
        self._connection.write(head.to_client(chunked=self._chunked, close=self.close))

    def write(self, data: bytes) -> None:
        """Send a part of the body."""
        if data and self._has_body:
            self._connection.write(chunk(data) if self._chunked else data)

    def finish(self) -> None:
        """The body is whole."""
        if self._chunked:
            self._connection.write(LAST_CHUNK)

    def abort(self) -> None:
        """End in the middle of the body: only a broken connection says so in this format."""
        self._connection.abort()

    def pause(self, paused: bool) -> None:
        """The client is slow (True) or caught up (False)."""
        self.is_paused = paused
        if self.on_pause:
            self.on_pause(paused)

    def refuse(self, refusal: Refusal) -> None:
        """Send a whole error answer."""
        self.start(refusal.head().with_headers((b"x-request-id", self._request.request_id)))
        self.write(refusal.body())
        self.finish()
