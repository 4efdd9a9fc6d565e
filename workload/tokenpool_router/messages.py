"""HTTP/1.1 messages as values, and how they look on the wire. Pure: no sockets."""

from dataclasses import dataclass
from typing import Final

Headers = tuple[tuple[bytes, bytes], ...]

# They belong to one connection and are never passed on (RFC 9110, 7.6.1).
HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Beyond those, what we write ourselves.
NOT_TO_SHARD: Final = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-request-id"}
NOT_TO_CLIENT: Final = HOP_BY_HOP | {b"content-length"}
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    408: "Request Timeout",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(frozen=True)
class Request:
    """One request with its whole body; names of headers are in lower case."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes
    keep_alive: bool
    version: str
    request_id: bytes

    def header(self, name: bytes) -> bytes | None:
        """The first header of that name."""
        return first(self.headers, name)

    def to_upstream(self, host: str) -> bytes:
        """The request as the shard gets it: our framing, our Host, the client's other headers."""
        lines = [b"%b %b HTTP/1.1" % (self.method, self.target), b"host: " + host.encode()]
        dropped = not_passed_on(self.headers, NOT_TO_SHARD)
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name not in dropped]
        lines.append(b"x-request-id: " + self.request_id)
        if self.body or self.method not in (b"GET", b"HEAD", b"OPTIONS"):
            lines.append(b"content-length: %d" % len(self.body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body


@dataclass(frozen=True)
class ResponseHead:
    """Status and headers of a response; `length` is None where the body's end is told otherwise."""

    status: int
    reason: bytes
    headers: Headers
    length: int | None = None

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is server-sent events that can be told apart, so not compressed ones."""
        kind, encoding = first(self.headers, b"content-type"), first(self.headers, b"content-encoding")
        return (kind or b"").lower().startswith(b"text/event-stream") and encoding in (None, b"identity")

    def to_client(self, *, chunked: bool, close: bool) -> bytes:
        """The head as the client gets it."""
        reason = self.reason or REASONS.get(self.status, "").encode()
        lines = [b"HTTP/1.1 %d %b" % (self.status, reason)]
        dropped = not_passed_on(self.headers, NOT_TO_CLIENT)
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name not in dropped]
        if chunked:
            lines.append(b"transfer-encoding: chunked")
        elif self.length is not None and self.status not in (204, 304):
            lines.append(b"content-length: %d" % self.length)
        if close:
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def with_headers(self, *more: tuple[bytes, bytes]) -> "ResponseHead":
        """The same head with these headers instead of its own of those names."""
        names = {name for name, _ in more}
        kept = tuple((name, value) for name, value in self.headers if name not in names)
        return ResponseHead(self.status, self.reason, kept + more, self.length)


def not_passed_on(headers: Headers, always: frozenset[bytes]) -> frozenset[bytes]:
    """The names of the headers that end here: those, and what `Connection` names."""
    named = [value for name, value in headers if name == b"connection"]
    if not named:
        return always
    return always.union(*([part.strip().lower() for part in value.split(b",")] for value in named))


def first(headers: Headers, name: bytes) -> bytes | None:
    """The first header of that name."""
    return next((value for key, value in headers if key == name), None)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK: Final = b"0\r\n\r\n"
