"""One answer on its way to the client: what is held back, what is passed on, and how it ends.

Until the client got the first byte everything is held here and another shard may begin anew. Of a stream only whole
events go on, so a lost shard leaves no half one, and with the ids of their tokens another shard can go on with it.
"""

from enum import Enum, auto
from typing import Final

from tokenpool_api import names
from tokenpool_router.http.messages import ResponseHead
from tokenpool_router.http.refusals import Refusal
from tokenpool_router.http.responder import Responder
from tokenpool_router.journey.continuation import Joint
from tokenpool_router.journey.events import EVENT_START, count_ids, events_end, split_ids

# Answers with a known length up to this are passed on whole, so that a shard lost in the middle can still be replaced.
# Nothing longer is held back, be it one event or an error answer.
HOLD_BYTES: Final = 1 << 20
PROMPT_TOKENS: Final = names.HEADER_PROMPT_TOKENS.encode()
COMPLETION_TOKENS: Final = names.HEADER_COMPLETION_TOKENS.encode()
SEED: Final = names.HEADER_SEED.encode()
BUSY: Final = (429, 503)


class Mode(Enum):
    """How the body is treated."""

    WHOLE = auto()
    """Held until its end."""
    EVENTS = auto()
    BYTES = auto()


class Transfer:
    """From the shard's head to the end of the answer, across shards if the stream is gone on with."""

    __slots__ = (
        "_first_event",
        "_held",
        "_ids",
        "_joint",
        "_keeps_ids",
        "_mode",
        "_more",
        "_responder",
        "_takes_ids",
        "head",
        "prompt_tokens",
        "seed",
        "tokens",
    )

    def __init__(self, responder: Responder, more: bytes, *, keeps_ids: bool) -> None:
        """`more` are header lines of ours for the client; `keeps_ids` where the stream may have to be gone on with."""
        self._responder, self._more, self._keeps_ids = responder, more, keeps_ids
        self._mode, self._held = Mode.BYTES, b""
        self._takes_ids, self._ids = False, bytearray()
        self._first_event = b""
        self._joint: Joint | None = None
        self.head: ResponseHead | None = None
        self.prompt_tokens = 0
        """As the shard counted them, 0 until it said so."""
        self.tokens = 0
        """Answer tokens that were passed on, or are held as a whole."""
        self.seed: bytes | None = None

    @property
    def can_go_on(self) -> bool:
        """Another shard could write the rest of what the client got so far."""
        return self._mode is Mode.EVENTS and self._takes_ids and self._keeps_ids

    @property
    def is_rest(self) -> bool:
        """It goes on with what a lost shard began."""
        return self._joint is not None

    @property
    def ids(self) -> bytes:
        """Token ids of what was passed on, as "1,2,3"."""
        return bytes(self._ids[1:])

    def go_on(self) -> None:
        """Expect the rest from another shard; a half event of the lost one is forgotten."""
        self._held, self.head = b"", None
        self._joint = Joint(self._first_event, self.tokens)

    def on_head(self, head: ResponseHead) -> None:
        """Status and headers. They wait for the first content: until then another shard can take over."""
        self.head = head
        if self._joint:
            return
        told = head.fields.get(PROMPT_TOKENS)
        if told:
            self.prompt_tokens = int(told)
            self.tokens = int(head.fields.get(COMPLETION_TOKENS, 0))
            self.seed = head.fields.get(SEED)
        known = head.length is not None and head.length <= HOLD_BYTES
        if head.status in BUSY or known:
            self._mode = Mode.WHOLE
        elif head.length is None and head.is_event_stream:
            # An event cannot be added to a body whose length was told already.
            self._mode = Mode.EVENTS
            self._takes_ids = bool(told)

    def take(self, data: bytes) -> tuple[bytes, int]:
        """A part of the body: what of it can be passed on now, and how many tokens that is."""
        if self._mode is Mode.BYTES:
            return data, 0
        if self._held:
            data = self._held + data
        if self._mode is Mode.WHOLE:
            end = 0
        elif data.endswith(b"\n\n"):
            self._held = b""
            return self._events(data)
        else:
            end = events_end(data)
        self._held = data[end:]
        if len(self._held) > HOLD_BYTES:
            # From here on these are just bytes.
            self._mode, self._held = Mode.BYTES, b""
            return data, 0
        return self._events(data[:end]) if end else (b"", 0)

    def _events(self, data: bytes) -> tuple[bytes, int]:
        if not self._takes_ids:
            # One event is about one token.
            return data, data.count(EVENT_START)
        data, ids = split_ids(data)
        tokens = count_ids(ids)
        self.tokens += tokens
        if ids and self._keeps_ids:
            self._ids += b"," + ids
        if not self._first_event:
            self._first_event = data
        return (self._joint.fit(data) if self._joint else data), tokens

    def send(self, data: bytes) -> None:
        """Pass on what `take` gave."""
        if data:
            self._begin()
            self._responder.write(data)

    def finish(self, data: bytes) -> None:
        """The shard's answer is whole: pass on the last of it with what was held back, and end."""
        self._begin()
        held, self._held = self._held, b""
        self._responder.finish(data + held)

    def _begin(self) -> None:
        if not self._responder.started and self.head:
            self._responder.start(self.head, self._more)
            self._more = b""
            self.head = self.head.without_headers()

    def break_off(self, refusal: Refusal) -> None:
        """The rest will not come and content went out already: say so where the format allows it, and close."""
        self._held = b""
        self._responder.close = True
        if self._mode is Mode.EVENTS:
            self._responder.finish(refusal.event())
        else:
            self._responder.abort()
