"""One answer to a client: status line, body in the framing that the client understands, and its end."""

from typing import Protocol

from tokenpool_router.http.messages import LAST_CHUNK, Request, ResponseHead, chunk
from tokenpool_router.http.refusals import Refusal


class Line(Protocol):
    """What an answer needs of the connection that it goes out on."""

    closing: bool
    """Whether no further request is taken on it."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def abort(self) -> None:
        """Break the connection."""

    def answered(self) -> None:
        """The answer is at its end."""


class Responder:
    """Writes one answer. The status line goes out with the first bytes of the body, as one piece."""

    __slots__ = ("_chunked", "_has_body", "_head", "_line", "close", "extra", "request", "started", "status")

    def __init__(self, line: Line, request: Request) -> None:
        self._line, self.request = line, request
        self._chunked = False
        self._has_body = request.method != b"HEAD"
        self._head = b""
        self.started = False
        self.status = 0
        self.close = not request.keep_alive
        self.extra = b""
        """Whole header lines that every answer to this request gets."""

    def start(self, head: ResponseHead, more: bytes = b"") -> None:
        """Status and headers, and header lines beyond those: from here on the answer can only be ended."""
        self.started = True
        self.status = head.status
        self._chunked = head.length is None and self.request.version == "1.1" and self._has_body
        # Without a length and without chunks only the connection's end tells the body's end.
        self.close = self.close or self._line.closing or (head.length is None and not self._chunked)
        self._head = head.to_client(more + self.extra, chunked=self._chunked, close=self.close)

    def write(self, data: bytes) -> None:
        """Send a part of the body."""
        if data and self._has_body:
            framed = chunk(data) if self._chunked else data
            if self._head:
                framed, self._head = self._head + framed, b""
            self._line.write(framed)

    def finish(self, data: bytes = b"") -> None:
        """Send the last part; the body is whole."""
        if not self._has_body:
            data = b""
        elif self._chunked:
            data = (chunk(data) if data else b"") + LAST_CHUNK
        data, self._head = self._head + data, b""
        if data:
            self._line.write(data)
        self._line.answered()

    def abort(self) -> None:
        """End in the middle of the body: only a broken connection says so in this format."""
        self.close = True
        self._line.abort()
        self._line.answered()

    def refuse(self, refusal: Refusal) -> None:
        """Send a whole error answer."""
        self.start(refusal.head(), b"x-request-id: %b\r\n" % self.request.request_id)
        self.finish(refusal.body())
