"""The faults that a `FaultProxy` can inject, and the rules that say where. Values only; the proxy acts on them."""

import json
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from support.api_paths import Call

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True)
class Answer:
    """Answer this instead of forwarding. `plain` gives the text form of overload protection, not a Status object."""

    status: int
    retry_after: int | None = None
    plain: bool = False


@dataclass(frozen=True)
class LoseReply:
    """Forward, then cut the connection instead of answering: a write has happened, and the caller cannot know."""


@dataclass(frozen=True)
class Refuse:
    """Cut the connection without forwarding."""


@dataclass(frozen=True)
class Delay:
    """Forward after so long."""

    seconds: float


@dataclass(frozen=True)
class StreamError:
    """Open the watch with 200, then send an ERROR event of this code and end."""

    code: int = 410


@dataclass(frozen=True)
class Freeze:
    """Open the watch and never send a byte of it."""


Fault: TypeAlias = Answer | LoseReply | Refuse | Delay | StreamError | Freeze


@dataclass
class Rule:
    """One fault and the calls it meets. `remaining` counts down to 0; None never runs out. Tests read `hits`."""

    fault: Fault
    verb: str | None = None
    resource: str | None = None
    path: str | None = None
    remaining: int | None = None
    hits: list[Call] = field(default_factory=list)

    def meets(self, call: Call) -> bool:
        return (
            self.remaining != 0
            and self.verb in (None, call.verb)
            and self.resource in (None, call.resource)
            and (self.path is None or re.search(self.path, call.path) is not None)
        )

    def strike(self, call: Call) -> Fault:
        self.hits.append(call)
        if self.remaining is not None:
            self.remaining -= 1
        return self.fault


def status_object(code: int, retry_after: int | None = None) -> dict[str, object]:
    """A Status as the API server writes it."""
    body: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": REASONS.get(code, "Unknown"),
        "message": f"injected {code}",
    }
    if retry_after is not None:
        body["details"] = {"retryAfterSeconds": retry_after}
    return body


def error_line(code: int) -> bytes:
    """An ERROR event of a watch."""
    return json.dumps({"type": "ERROR", "object": status_object(code)}).encode() + b"\n"
