"""Server-sent events as bytes: where whole ones end, and the token ids that a shard writes between them. Pure."""

from typing import Final

EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
EVENT_START: Final = b"data:"
COMMENT: Final = ord(":")


def events_end(held: bytes) -> int:
    """Where the last whole event ends, 0 for none: events end with an empty line."""
    if held.endswith(EVENT_ENDS):
        return len(held)
    return max(found + len(end) if (found := held.rfind(end)) >= 0 else 0 for end in EVENT_ENDS)


def split_ids(events: bytes) -> tuple[bytes, bytes]:
    """Whole events without the comments of token ids, and the ids as "1,2,3"."""
    ids_of: list[bytes] = []
    lines: list[bytes] = []
    for line in events.split(b"\n"):
        if line and line[0] == COMMENT:
            ids_of.append(line[1:])
        else:
            lines.append(line)
    return b"\n".join(lines), b",".join(ids_of)


def count_ids(ids: bytes) -> int:
    """How many there are."""
    return ids.count(b",") + 1 if ids else 0
