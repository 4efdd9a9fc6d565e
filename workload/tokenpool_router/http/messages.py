"""HTTP/1.1 messages as values, and how they look on the wire. Pure: no sockets."""

from collections.abc import Mapping
from typing import Final, final

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
NOT_TO_CLIENT: Final = HOP_BY_HOP | {b"content-length", b"x-request-id"}
# What router and shard tell each other; neither clients nor shards may speak for the other side.
OURS: Final = b"x-tokenpool-"
_NOTHING: Final[dict[bytes, bytes]] = {}
REASONS: Final = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    408: "Request Timeout",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


# Requests and answers share the names of their headers: thousands of open streams hold each of them once.
_USUAL: Final = (
    b"accept accept-encoding accept-language authorization cache-control connection content-length content-type cookie "
    b"date forwarded host openai-organization openai-project origin server traceparent tracestate transfer-encoding "
    b"user-agent vary via x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-real-ip x-request-id "
    b"x-stainless-arch x-stainless-async x-stainless-lang x-stainless-os x-stainless-package-version "
    b"x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime x-stainless-runtime-version"
).split()
_NAMES: Final = {spelled: name for name in _USUAL for spelled in (name, name.title())}


def lower_name(name: bytes) -> bytes:
    """A header's name as it is compared."""
    return _NAMES.get(name) or name.lower()


@final
class Request:
    """One request with its whole body; names of headers are in lower case."""

    __slots__ = ("body", "fields", "headers", "keep_alive", "method", "request_id", "target", "version")

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        body: bytes,
        *,
        keep_alive: bool,
        version: str,
        request_id: bytes,
        fields: dict[bytes, bytes] | None = None,
    ) -> None:
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.keep_alive, self.version, self.request_id = keep_alive, version, request_id
        self.fields = dict(headers) if fields is None else fields
        """The last header of each name."""

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    def to_upstream(self, host: bytes, more: bytes = b"", *, body: bytes | None = None, without: bytes = b"") -> bytes:
        """The request as the shard gets it: our framing, our Host, the client's other headers.

        `more` are whole header lines, each with its end; `without` is one header that stays here.
        """
        sent = self.body if body is None else body
        dropped = not_passed_on(self.headers, self.fields, NOT_TO_SHARD)
        words = [self.method, b" ", self.target, b" HTTP/1.1\r\nhost: ", host, b"\r\n"]
        for name, value in self.headers:
            if name not in dropped and name != without and not name.startswith(OURS):
                words += (name, b": ", value, b"\r\n")
        words += (b"x-request-id: ", self.request_id, b"\r\n", more)
        if sent or self.method not in (b"GET", b"HEAD", b"OPTIONS"):
            words.append(b"content-length: %d\r\n" % len(sent))
        words += (b"\r\n", sent)
        return b"".join(words)


@final
class ResponseHead:
    """Status and headers of a response; `length` is None where the body's end is told otherwise."""

    __slots__ = ("fields", "headers", "length", "reason", "status")

    def __init__(
        self,
        status: int,
        reason: bytes,
        headers: Headers,
        length: int | None = None,
        fields: dict[bytes, bytes] | None = None,
    ) -> None:
        self.status, self.reason, self.headers, self.length = status, reason, headers, length
        self.fields = dict(headers) if fields is None else fields
        """The last header of each name."""

    def without_headers(self) -> "ResponseHead":
        """What is kept once they are sent: a stream may stay open for long, and they are a tenth of what it holds."""
        return ResponseHead(self.status, b"", (), self.length, _NOTHING)

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is server-sent events that can be told apart, so not compressed ones."""
        kind, encoding = self.fields.get(b"content-type", b""), self.fields.get(b"content-encoding", b"identity")
        return kind.lower().startswith(b"text/event-stream") and encoding == b"identity"

    def to_client(self, more: bytes = b"", *, chunked: bool, close: bool) -> bytes:
        """The head as the client gets it. `more` are whole header lines, each with its end."""
        dropped = not_passed_on(self.headers, self.fields, NOT_TO_CLIENT)
        reason = self.reason or REASONS.get(self.status, "").encode()
        words = [b"HTTP/1.1 %d %b\r\n" % (self.status, reason)]
        for name, value in self.headers:
            if name not in dropped and not name.startswith(OURS):
                words += (name, b": ", value, b"\r\n")
        if chunked:
            words.append(b"transfer-encoding: chunked\r\n")
        elif self.length is not None and self.status not in (204, 304):
            words.append(b"content-length: %d\r\n" % self.length)
        if close:
            words.append(b"connection: close\r\n")
        words += (more, b"\r\n")
        return b"".join(words)


def not_passed_on(headers: Headers, fields: Mapping[bytes, bytes], always: frozenset[bytes]) -> frozenset[bytes]:
    """The names of the headers that end here: those, and what `Connection` names."""
    if b"connection" not in fields:
        return always
    named = [value for name, value in headers if name == b"connection"]
    return always.union(*([part.strip().lower() for part in value.split(b",")] for value in named))


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK: Final = b"0\r\n\r\n"
