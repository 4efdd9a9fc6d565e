"""How often does the pool use each token? Batches of counts, and the one table that they are merged into.

Pure. The table forgets by halving: when it holds more than MOST_COUNTED tokens, every count is halved until it does
not, and what falls to zero leaves. So it is bounded, what is used now outweighs what was used once, and the order of
counts that stay apart is kept.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from tokenpool_router.shared.messages import Unreadable

MOST_TOKEN_ID: Final = 1_000_000
MOST_COUNTED: Final = 100_000_000
MOST_IDS_OF_BATCH: Final = 8_192
# An entry of a batch is at most an id of 7 digits and a count of 9, with quotes, colon and comma.
MOST_BATCH_BYTES: Final = MOST_IDS_OF_BATCH * 20 + 2
HEAD: Final = b"tokens1\n"
MOST_TABLE_BYTES: Final = len(HEAD) + 8 * (MOST_TOKEN_ID + 1)


class Outbox:
    """Counts on their way out. A batch stays the same until it is known to have arrived, so it can be sent again."""

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}
        self._batch: bytes | None = None
        self.sequence = 1

    def put(self, counts: Mapping[int, int]) -> None:
        """Add counts; ids that cannot be are dropped."""
        add_counts(self._waiting, counts)

    def batch(self) -> bytes | None:
        """What goes out next, under the number `sequence`; None when there is nothing."""
        if self._batch is None and self._waiting:
            ids = [token for token, _ in zip(self._waiting, range(MOST_IDS_OF_BATCH), strict=False)]
            self._batch = encode_batch({token: self._waiting.pop(token) for token in ids})
        return self._batch

    def arrived(self) -> None:
        """The batch is in Redis."""
        self._batch = None
        self.sequence += 1


def encode_batch(counts: Mapping[int, int]) -> bytes:
    """A batch as JSON, {"token id": count}."""
    return orjson.dumps({str(token): count for token, count in counts.items()})


def decode_batch(body: bytes) -> dict[int, int]:
    """Read a batch; entries that cannot be are dropped.

    Raises:
        Unreadable: no batch at all.
    """
    if len(body) > MOST_BATCH_BYTES:
        raise Unreadable("a batch is too long")
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unreadable("no JSON") from error
    if not isinstance(said, dict):
        raise Unreadable("no batch")
    counts: dict[int, int] = {}
    add_counts(counts, {int(key): count for key, count in said.items() if _is_token_id(key)})
    return counts


def _is_token_id(key: str) -> bool:
    return len(key) <= 7 and key.isascii() and key.isdecimal()


def add_counts(table: dict[int, int], counts: Mapping[int, int]) -> None:
    """Add the counts of ids that can be; no count goes above MOST_COUNTED."""
    for token, count in counts.items():
        if type(count) is int and count > 0 and 0 <= token <= MOST_TOKEN_ID:
            table[token] = min(table.get(token, 0) + count, MOST_COUNTED)


def merge(table: bytes, batches: Iterable[Mapping[int, int]]) -> bytes:
    """The packed table with the batches added, halved as often as it needs.

    Raises:
        Unreadable: the table is none.
    """
    counts = unpack(table)
    for batch in batches:
        add_counts(counts, batch)
    return pack(halve(counts))


def halve(counts: Mapping[int, int]) -> Mapping[int, int]:
    """The counts, halved until they are at most MOST_COUNTED together."""
    total, halvings = sum(counts.values()), 0
    while total >> halvings > MOST_COUNTED:
        halvings += 1
    return {token: count >> halvings for token, count in counts.items() if count >> halvings}


def pack(counts: Mapping[int, int]) -> bytes:
    """A table as bytes: all ids, then all counts, 32 bits each, little end first."""
    ids = sorted(counts)
    return HEAD + _words(ids) + _words(counts[token] for token in ids)


def unpack(table: bytes) -> dict[int, int]:
    """Read a packed table; nothing is the empty one.

    Raises:
        Unreadable: it is something else.
    """
    if not table:
        return {}
    length = len(table) - len(HEAD)
    if not table.startswith(HEAD) or length % 8 or len(table) > MOST_TABLE_BYTES:
        raise Unreadable("no table of counts")
    words = array("I", table[len(HEAD) :])
    if sys.byteorder == "big":
        words.byteswap()
    counts: dict[int, int] = {}
    add_counts(counts, dict(zip(words[: length // 8], words[length // 8 :], strict=True)))
    return counts


def _words(numbers: Iterable[int]) -> bytes:
    words = array("I", numbers)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
