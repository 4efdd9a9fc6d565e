"""Server-sent events as bytes: where whole ones end, and the token ids that a shard writes between them. Pure."""

from typing import Final

EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
EVENT_START: Final = b"data:"


def events_end(held: bytes) -> int:
    """Where the last whole event ends, 0 for none: events end with an empty line."""
    if held.endswith(EVENT_ENDS):
        return len(held)
    return max(found + len(end) if (found := held.rfind(end)) >= 0 else 0 for end in EVENT_ENDS)


def split_ids(events: bytes) -> tuple[bytes, bytes]:
    """Whole events without the comments of token ids, and the ids as "1,2,3"."""
    if events[:1] == b":" and events.find(b"\n:", 1) < 0:
        # One token, one event: by far the most frequent.
        ids, _, rest = events.partition(b"\n")
        return rest, ids[1:]
    first, *rest_of_them = (b"\n" + events).split(b"\n:")
    if not rest_of_them:
        return events, b""
    ids_of, texts = [], [first]
    for piece in rest_of_them:
        ids, _, text = piece.partition(b"\n")
        ids_of.append(ids)
        texts.append(text)
    # Where a comment follows a comment there is no text between them, and no line end either.
    kept = [text for text in texts[1:] if text]
    return b"\n".join([first, *kept])[1:] if first else b"\n".join(kept), b",".join(ids_of)


def count_ids(ids: bytes) -> int:
    """How many there are."""
    return ids.count(b",") + 1 if ids else 0
