"""From a client's bytes to whole requests, or to a refusal before more of them is read."""

from dataclasses import dataclass
from itertools import count
from secrets import token_hex
from typing import Final, Protocol

import httptools

from tokenpool_router.http.messages import Request, lower_name
from tokenpool_router.http.refusals import BAD_REQUEST, Refusal, body_too_large, headers_too_large

HEADER_BYTES: Final = 64 << 10
BODY_BYTES: Final = 8 << 20
# How long a request may take to arrive, and a connection may be idle.
ARRIVAL_SECONDS: Final = 60.0
# How long a client may leave what was sent to it unread. It holds a shard's stream all that time.
UNREAD_SECONDS: Final = 300.0
LONGEST_ID: Final = 128
# Ids of our own are unique by process and by request; making one is cheaper than drawing one.
_PROCESS: Final = token_hex(8).encode()
_numbers = count(1)


@dataclass(frozen=True)
class Limits:
    """Bounds of a request and of its client's patience."""

    header_bytes: int = HEADER_BYTES
    body_bytes: int = BODY_BYTES
    arrival_seconds: float = ARRIVAL_SECONDS
    unread_seconds: float = UNREAD_SECONDS


class Reception(Protocol):
    """Whom a reader tells."""

    def request_begins(self) -> None:
        """The first byte of a request is here."""

    def request_waits(self) -> None:
        """A client holds its body back until it is asked for it."""

    def request_read(self, request: Request) -> None:
        """A whole request is here."""

    def request_refused(self, refusal: Refusal) -> None:
        """What comes is no request that we take; nothing more is read."""


class RequestReader:
    """Reads one connection's requests, one after the other."""

    __slots__ = (
        "_body",
        "_bytes_since_body",
        "_fields",
        "_headers",
        "_in_head",
        "_limits",
        "_method",
        "_parser",
        "_reception",
        "_url",
        "_version",
        "head_bytes",
        "refused",
    )

    def __init__(self, reception: Reception, limits: Limits) -> None:
        self._reception, self._limits = reception, limits
        self._parser = httptools.HttpRequestParser(self)
        self.refused = False
        """Nothing more is read."""
        self._reset()

    def _reset(self) -> None:
        self._url = self._method = b""
        self._version = ""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._fields: dict[bytes, bytes] = {}
        self._bytes_since_body, self._in_head = 0, True
        self.head_bytes = 0
        """Bytes of the request that arrives now; 0 between requests."""

    def feed(self, data: bytes) -> None:
        """Parse; refuse what is too large before more of it is read."""
        if self.refused:
            return
        self._bytes_since_body += len(data)
        if self._in_head:
            self.head_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError:
            # A callback refused the request and said so; anything else is a bug.
            if not self.refused:
                raise
        except httptools.HttpParserError:
            self._refuse(BAD_REQUEST)
        else:
            # The parser itself would gather a header, or a trailer after a chunked body, without end.
            if self._bytes_since_body > self._limits.header_bytes:
                self._refuse(headers_too_large(self._limits.header_bytes))

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
        head_bytes = self.head_bytes
        self._reset()
        self.head_bytes = head_bytes
        self._parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")

    def _refuse(self, refusal: Refusal) -> None:
        if not self.refused:
            self.refused = True
            self._reception.request_refused(refusal)

    def _stop(self, refusal: Refusal) -> None:
        """Refuse from inside a parser's call: the raised error ends the parsing of what is at hand."""
        self._refuse(refusal)
        raise ValueError(refusal.code)

    # --- the parser's calls ----------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._reception.request_begins()

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Trailers are dropped: they come too late to be one."""
        if self._in_head:
            self._headers.append((lower_name(name), value))

    def on_headers_complete(self) -> None:
        """Everything that can be refused without the body is refused here."""
        self._method, version = self._parser.get_method(), self._parser.get_http_version()
        if self._method == b"CONNECT":
            self._stop(BAD_REQUEST)
        if self._parser.should_upgrade():
            return
        self._in_head = False
        limit = self._limits.header_bytes
        if self.head_bytes > limit and self._head_size() > limit:
            self._stop(headers_too_large(limit))
        headers = self._fields = dict(self._headers)
        self._version = version
        if version not in ("1.0", "1.1") or (b"transfer-encoding" in headers and not _is_chunked(self._headers)):
            self._stop(BAD_REQUEST)
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            self._stop(body_too_large(self._limits.body_bytes))
        if b"expect" in headers and version == "1.1" and headers[b"expect"].lower() == b"100-continue":
            self._reception.request_waits()

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def on_body(self, data: bytes) -> None:
        """A part of the body; most bodies come as one."""
        if len(self._body) + len(data) > self._limits.body_bytes:
            self._stop(body_too_large(self._limits.body_bytes))
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        self._bytes_since_body = 0

    def on_message_complete(self) -> None:
        """A whole request."""
        parser = self._parser
        if parser.should_upgrade():
            return
        request = Request(
            self._method,
            self._url,
            tuple(self._headers),
            bytes(self._body),
            keep_alive=parser.should_keep_alive(),
            version=self._version,
            request_id=self._fields.get(b"x-request-id", b"")[:LONGEST_ID] or b"%b-%x" % (_PROCESS, next(_numbers)),
            fields=self._fields,
        )
        self._reset()
        self._reception.request_read(request)


def _is_chunked(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the body comes in chunks and in no other encoding, which would have to be undone before it is sent on."""
    return all(value.strip().lower() == b"chunked" for name, value in headers if name == b"transfer-encoding")
