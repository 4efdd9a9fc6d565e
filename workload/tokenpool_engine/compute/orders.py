"""What rank 0 tells the other ranks, and how it travels: integers and short JSON, never objects.

A step is what rank 0 decided, so that nothing needs deciding where it arrives.
"""

import json
from array import array
from dataclasses import asdict, dataclass

from tokenpool_engine.compute.rows import Rows, Span


@dataclass(frozen=True)
class Load:
    """Set torch up as rank 0 is, and load the rank's part of the model."""

    folder: str
    dtype: str
    matmul_precision: str | None = None
    cudnn_benchmark: bool = False


@dataclass(frozen=True)
class MakeCache:
    """Make a KV cache of so many pages, for the rank's heads."""

    pages: int
    page_tokens: int


@dataclass(frozen=True)
class Compute:
    """Compute a step together with the other ranks."""

    rows: Rows


@dataclass(frozen=True)
class Stop:
    """End: rank 0 is about to."""


Order = Load | MakeCache | Compute | Stop
LOAD, CACHE, COMPUTE, STOP = (bytes([letter]) for letter in b"LCSX")


def encode(order: Order) -> bytes:
    """An order as bytes."""
    match order:
        case Load():
            return LOAD + json.dumps(asdict(order)).encode()
        case MakeCache():
            return CACHE + json.dumps(asdict(order)).encode()
        case Compute(rows):
            return COMPUTE + _pack(rows)
        case Stop():
            return STOP


def decode(frame: bytes) -> Order:
    """The order that `encode` was given."""
    kind, body = frame[:1], frame[1:]
    if kind == COMPUTE:
        return Compute(_unpack(body))
    if kind == LOAD:
        return Load(**json.loads(body))
    if kind == CACHE:
        return MakeCache(**json.loads(body))
    if kind == STOP:
        return Stop()
    raise ValueError(f"unknown order {kind!r}")


def _pack(rows: Rows) -> bytes:
    """Four lengths, then ids, pages, rows that sample, and the spans' numbers."""
    spans = array("i", [number for span in rows.spans for number in span])
    parts = (rows.ids, rows.pages, rows.sample_rows, spans)
    return b"".join(part.tobytes() for part in (array("i", map(len, parts)), *parts))


def _unpack(body: bytes) -> Rows:
    numbers = array("i")
    numbers.frombytes(body)
    at, parts = 4, []
    for size in numbers[:4]:
        parts.append(numbers[at : at + size])
        at += size
    ids, pages, sample_rows, spans = parts
    found = tuple(Span(*spans[first : first + 4]) for first in range(0, len(spans), 4))
    return Rows(ids, found, pages, sample_rows)
