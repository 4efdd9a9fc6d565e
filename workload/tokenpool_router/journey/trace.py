"""W3C trace context: the router's own span between the client's and the shard's. Pure; randomness comes in."""

import re
from dataclasses import dataclass
from random import Random
from typing import Final

VALID: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
NO_TRACE: Final = b"0" * 32
NO_SPAN: Final = b"0" * 16


@dataclass(frozen=True, slots=True)
class Trace:
    """One request's span; `parent_id` is empty where the trace begins here."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    flags: bytes

    @property
    def is_sampled(self) -> bool:
        """Whether whoever began the trace wants it recorded."""
        return bool(int(self.flags, 16) & 1)

    @property
    def line(self) -> bytes:
        """The header line for the shard."""
        return b"traceparent: 00-%b-%b-%b\r\n" % (self.trace_id, self.span_id, self.flags)


def trace_of(header: bytes | None, random: Random) -> Trace:
    """Go on with the client's trace, or begin one where there is none that can be read."""
    span_id = b"%016x" % (random.getrandbits(64) or 1)
    found = VALID.fullmatch(header.strip()) if header else None
    if found and found[1] != NO_TRACE and found[2] != NO_SPAN:
        return Trace(found[1], span_id, found[2], found[3])
    return Trace(b"%032x" % (random.getrandbits(128) or 1), span_id, b"", b"01")
