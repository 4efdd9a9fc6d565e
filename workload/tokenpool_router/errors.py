"""What the router itself refuses, in OpenAI's form."""

from dataclasses import dataclass

import orjson

from tokenpool_router.messages import ResponseHead


@dataclass(frozen=True)
class Refusal:
    """An error answer. `retry_after` in seconds, 0 for none."""

    status: int
    message: str
    code: str
    retry_after: int = 0

    @property
    def kind(self) -> str:
        """OpenAI's error type."""
        return "server_error" if self.status >= 500 else "invalid_request_error"

    def body(self) -> bytes:
        """The error envelope."""
        error = {"message": self.message, "type": self.kind, "param": None, "code": self.code}
        return orjson.dumps({"error": error})

    def head(self) -> ResponseHead:
        """Status and headers."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        return ResponseHead(self.status, b"", tuple(headers), len(self.body()))

    def event(self) -> bytes:
        """The error as a server-sent event, for a stream that has begun."""
        return b"data: " + self.body() + b"\n\n"


BAD_REQUEST = Refusal(400, "the request is not valid HTTP/1.1", "bad_request")
TIMED_OUT = Refusal(408, "the request did not arrive in time", "request_timeout")
QUEUE_FULL = Refusal(503, "no shard is ready and too many requests wait already", "queue_full", retry_after=10)
NO_SHARD = Refusal(503, "no shard became ready in time", "no_shard", retry_after=5)
INTERNAL = Refusal(500, "the router failed on this request", "internal_error")
ROUTER_STOPS = Refusal(503, "the router stops and the answer took too long to finish", "router_stopping", retry_after=1)
SHARD_LOST = Refusal(502, "the shard was lost before it finished the answer", "shard_lost")
SHARD_SILENT = Refusal(504, "the shard did not answer in time", "shard_timeout")


def headers_too_large(limit: int) -> Refusal:
    """431."""
    return Refusal(431, f"the request's headers are larger than {limit} bytes", "headers_too_large")


def body_too_large(limit: int) -> Refusal:
    """413."""
    return Refusal(413, f"the request's body is larger than {limit} bytes", "body_too_large")
