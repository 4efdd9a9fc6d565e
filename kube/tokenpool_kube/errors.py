"""What went wrong on the way to the API server, as types: callers decide by class, people read the message.

Must not know who called, nor what will be done about it.
"""

import json
from collections.abc import Mapping
from typing import Any


class ClusterError(Exception):
    """The API server could not be reached, or said no."""

    retry_after: float | None = None
    """Seconds the server asked us to wait, where it did."""


class NotConfigured(ClusterError):
    """There is neither a service account nor a kubeconfig that can be read. Only a person can help."""


class Unreachable(ClusterError):
    """No answer: refused, reset, timed out, cut in the middle. A write may have happened or not."""


class ApiError(ClusterError):
    """The API server answered with an error status."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Invalid(ApiError):
    """400 or 422: the server will never take this object."""


class Unauthorized(ApiError):
    """401: the token is missing, expired or not known."""


class Forbidden(ApiError):
    """403: the message names the verb and resource that RBAC does not grant, or the admission rule."""


class NotFound(ApiError):
    """404: no such object, namespace or kind."""


class Conflict(ApiError):
    """409: resourceVersion, UID or field ownership is not what the request assumed."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken, perhaps by ourselves after a lost reply. Compare the owner's UID."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; only a fresh list helps."""


class TooManyRequests(ApiError):
    """429: wait `retry_after` seconds."""


class ServerError(ApiError):
    """5xx: temporary, by convention."""


BY_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_status(status: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    """The error that a `Status` object tells, be it the body of an answer or an ERROR event inside a watch."""
    code = int(status.get("code") or 500)
    reason = str(status.get("reason") or "Unknown")
    message = str(status.get("message") or "no message")
    if retry_after is None:
        retry_after = parse_seconds((status.get("details") or {}).get("retryAfterSeconds"))
    if reason == "AlreadyExists":
        return AlreadyExists(code, reason, message, retry_after)
    # "Expired" is what a watch says about an old resourceVersion; some proxies pass it on with another code.
    if reason in ("Expired", "Gone"):
        return Gone(code, reason, message, retry_after)
    error_class = BY_STATUS.get(code, ServerError if code >= 500 else ApiError)
    return error_class(code, reason, message, retry_after)


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error behind an HTTP answer. Its body may be anything: overload protection answers in plain text."""
    retry_after = parse_seconds(headers.get("Retry-After"))
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.get("kind") != "Status":
        told = {"message": body[:500].decode(errors="replace").strip()}
    return error_from_status({**told, "code": status}, retry_after)


def parse_seconds(value: object) -> float | None:
    """Seconds from a Retry-After value; None for an absent one, nonsense, or a date (the server sends none)."""
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None
