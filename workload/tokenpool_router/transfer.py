"""One shard's answer on its way to the client: what is held back, what is passed on, and how it ends."""

from typing import Final

from tokenpool_router.balancer import Lease
from tokenpool_router.errors import Refusal
from tokenpool_router.messages import ResponseHead
from tokenpool_router.responder import Responder

# Answers with a known length up to this are passed on whole, so that a shard lost in the middle can still be replaced.
# Nothing longer is held back, be it one event or an error answer.
HOLD_BYTES: Final = 1 << 20
EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
EVENT_START: Final = b"data:"


class Transfer:
    """Callbacks for the exchange. `headers` are added to the shard's."""

    def __init__(self, responder: Responder, lease: Lease, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self._responder, self._lease, self._headers = responder, lease, headers
        self._held = bytearray()
        self._holds_all = False
        self._is_events = False
        self.head: ResponseHead | None = None

    @property
    def is_paused(self) -> bool:
        """The client, not the shard, is slow."""
        return self._responder.is_paused

    def on_head(self, head: ResponseHead) -> None:
        """Status and headers came. They wait for the first content: until then another shard can take over."""
        self.head = head.with_headers(*self._headers)
        # An event cannot be added to a body whose length was told already.
        self._is_events = head.is_event_stream and head.length is None
        known = head.length is not None and head.length <= HOLD_BYTES
        self._holds_all = head.status in (429, 503) or known

    def on_body(self, data: bytes) -> None:
        """A part of the body. Of an event stream only whole events go on, so a lost shard leaves no half one."""
        if not self._holds_all and not self._is_events:
            self._send(data)
            return
        self._held += data
        if len(self._held) > HOLD_BYTES:
            # From here on these are just bytes.
            self._holds_all = self._is_events = False
            self._send_held(len(self._held))
        elif self._is_events and not self._holds_all and (end := events_end(self._held)):
            self._send_held(end)

    def _send_held(self, length: int) -> None:
        whole = bytes(self._held[:length])
        del self._held[:length]
        # One event is about one token; usage at the end is not needed, since the lease ends with the answer.
        self._lease.progress(whole.count(EVENT_START))
        self._send(whole)

    def _send(self, data: bytes) -> None:
        if not self._responder.started and self.head:
            self._responder.start(self.head)
        self._responder.write(data)

    def finish(self) -> None:
        """The shard's answer is whole: pass on what was held back, and end."""
        if not self._responder.started and self.head:
            self._responder.start(self.head)
        if self._held:
            self._responder.write(bytes(self._held))
            self._held.clear()
        self._responder.finish()

    def break_off(self, refusal: Refusal) -> None:
        """The shard is gone and content went out already: say so where the format allows it, and close."""
        self._held.clear()
        self._responder.close = True
        if self._is_events:
            self._responder.write(refusal.event())
            self._responder.finish()
        else:
            self._responder.abort()


def events_end(held: bytearray) -> int:
    """Where the last whole event ends, 0 for none: events end with an empty line."""
    if held.endswith(EVENT_ENDS):
        return len(held)
    return max(found + len(end) if (found := held.rfind(end)) >= 0 else 0 for end in EVENT_ENDS)
