"""A stream that goes on on another shard: the request for the rest, and the rest made to fit what was sent. Pure."""

from typing import Any, Final

import orjson

from tokenpool_api import names

DATA: Final = b"data: "


def rest_of(body: bytes, ids: bytes, seed: bytes | None) -> bytes:
    """The client's body, with the answer's token ids so far ("1,2,3") and the seed that drew them."""
    parsed: dict[str, Any] = orjson.loads(body)
    if ids:
        parsed[names.FIELD_CONTINUE] = [int(token) for token in ids.split(b",")]
    if seed and parsed.get("seed") is None:
        parsed["seed"] = int(seed)
    return orjson.dumps(parsed)


class Joint:
    """Makes the events of the second shard look like the first one's. `sent`: answer tokens before it."""

    __slots__ = ("_created", "_sent")

    def __init__(self, first_event: bytes, sent: int) -> None:
        self._created = _created(first_event)
        self._sent = sent

    def fit(self, events: bytes) -> bytes:
        """Whole events in, whole events out."""
        return b"".join([self._fit(event) for event in events.split(b"\n\n") if event])

    def _fit(self, event: bytes) -> bytes:
        body = _body(event)
        if body is None:
            return event + b"\n\n"
        choices = body.get("choices")
        if choices and (choices[0].get("delta") or {}).get("role") and not choices[0]["delta"].get("content"):
            # A chat's opening was sent already.
            return b""
        if self._created is not None and "created" in body:
            body["created"] = self._created
        usage = body.get("usage")
        if usage:
            usage["completion_tokens"] += self._sent
            usage["total_tokens"] += self._sent
        return DATA + orjson.dumps(body) + b"\n\n"


def _created(event: bytes) -> Any:
    body = _body(event.partition(b"\n\n")[0])
    return body.get("created") if body else None


def _body(event: bytes) -> dict[str, Any] | None:
    """The JSON of an event; None for anything else, such as [DONE]."""
    if not event.startswith(DATA):
        return None
    try:
        body: Any = orjson.loads(event[len(DATA) :])
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None
