"""One shard's answer on its way to the client: what is held back, what is passed on, and how it ends."""

from typing import Final

from tokenpool_router.balancer import Lease
from tokenpool_router.errors import Refusal
from tokenpool_router.messages import ResponseHead
from tokenpool_router.responder import Responder

# Answers with a known length up to this are passed on whole, so that a shard lost in the middle can still be replaced.
HOLD_BYTES: Final = 1 << 20
EVENT_END: Final = b"\n\n"
EVENT_START: Final = b"data: "


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
        return self._responder.paused

    def on_head(self, head: ResponseHead) -> None:
        """Status and headers came. They wait for the first content: until then another shard can take over."""
        self.head = head.with_headers(*self._headers)
        self._is_events = head.is_event_stream
        known = head.length is not None and head.length <= HOLD_BYTES
        self._holds_all = head.status in (429, 503) or (known and not self._is_events)

    def on_body(self, data: bytes) -> None:
        """A part of the body. Of an event stream only whole events go on, so a lost shard leaves no half one."""
        if self._holds_all or self._is_events:
            self._held += data
        if self._holds_all:
            return
        if not self._is_events:
            self._send(data)
            return
        end = self._held.rfind(EVENT_END)
        if end >= 0:
            whole = bytes(self._held[: end + len(EVENT_END)])
            del self._held[: len(whole)]
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
