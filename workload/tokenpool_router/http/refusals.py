"""What the router itself refuses, in OpenAI's form."""

from dataclasses import dataclass, replace
from math import ceil

import orjson

from tokenpool_router.http.messages import ResponseHead


@dataclass(frozen=True)
class Refusal:
    """An error answer. `retry_after` in seconds, 0 for none; `is_final` tells clients that a retry will not help."""

    status: int
    message: str
    code: str
    retry_after: float = 0.0
    is_final: bool = False

    @property
    def kind(self) -> str:
        """OpenAI's error type."""
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    def body(self) -> bytes:
        """The error envelope."""
        error = {"message": self.message, "type": self.kind, "param": None, "code": self.code}
        return orjson.dumps({"error": error})

    def head(self) -> ResponseHead:
        """Status and headers. Retry-After is in whole seconds; OpenAI's clients read the finer one first."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after:
            headers.append((b"retry-after", b"%d" % ceil(self.retry_after)))
            headers.append((b"retry-after-ms", b"%d" % (self.retry_after * 1000)))
        if self.is_final:
            headers.append((b"x-should-retry", b"false"))
        return ResponseHead(self.status, b"", tuple(headers), len(self.body()))

    def event(self) -> bytes:
        """The error as a server-sent event, for a stream that has begun."""
        return b"data: " + self.body() + b"\n\n"

    def after(self, seconds: float) -> "Refusal":
        """The same, with a time after which to come back."""
        return replace(self, retry_after=seconds)


BAD_REQUEST = Refusal(400, "the request is not valid HTTP/1.1", "bad_request")
TIMED_OUT = Refusal(408, "the request did not arrive in time", "request_timeout")
NO_KEY = Refusal(401, "an API key is needed: send it as 'Authorization: Bearer KEY'", "invalid_api_key")
WRONG_KEY = Refusal(401, "the API key is not known to this pool", "invalid_api_key")
QUEUE_FULL = Refusal(429, "the pool is full and too many requests wait already", "queue_full")
QUEUE_TIMEOUT = Refusal(429, "the pool is full and no shard became free in time", "queue_timeout")
NO_ROOM = Refusal(503, "no shard is ready and too many requests wait already", "queue_full")
NO_SHARD = Refusal(503, "no shard became ready in time", "no_shard")
INTERNAL = Refusal(500, "the router failed on this request", "internal_error")
ROUTER_STOPS = Refusal(503, "the router stops and the answer took too long to finish", "router_stopping", retry_after=1)
SHARD_LOST = Refusal(502, "the shard was lost before it finished the answer", "shard_lost")
SHARD_SILENT = Refusal(504, "the shard did not answer in time", "shard_timeout")
TOO_LONG = Refusal(504, "the answer took longer than this pool allows", "request_timeout")
QUARANTINED = Refusal(
    422, "two shards were lost over this request; it is not tried again for now", "request_quarantined", is_final=True
)


def headers_too_large(limit: int) -> Refusal:
    """431."""
    return Refusal(431, f"the request's headers are larger than {limit} bytes", "headers_too_large")


def body_too_large(limit: int) -> Refusal:
    """413."""
    return Refusal(413, f"the request's body is larger than {limit} bytes", "body_too_large")
