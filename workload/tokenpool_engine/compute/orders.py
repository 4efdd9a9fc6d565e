"""What rank 0 tells the other ranks, and how it travels: integers and short JSON, never objects.

A step is what rank 0 decided, so that nothing needs deciding where it arrives.
"""

import json
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from tokenpool_engine.request import Request
from tokenpool_engine.scheduler import Slice, Step


@dataclass(frozen=True)
class Load:
    """Load the rank's part of the model."""

    folder: str
    dtype: str


@dataclass(frozen=True)
class MakeCache:
    """Make a KV cache of so many tokens, for the rank's heads."""

    slots: int
    page_tokens: int


@dataclass(frozen=True)
class Compute:
    """Compute a step together with the other ranks."""

    step: Step


@dataclass(frozen=True)
class Stop:
    """End: rank 0 is about to."""


Order = Load | MakeCache | Compute | Stop
LOAD, CACHE, COMPUTE, STOP = (bytes([letter]) for letter in b"LCSX")
LINE: Final = b"\n"


@dataclass(eq=False)
class Told(Request):
    """A request of which only the tokens of one slice are known, from position `first` on."""

    first: int = 0

    def tokens(self, start: int, stop: int) -> list[int]:
        """Ids of positions start … stop - 1, which are the slice's."""
        return list(self.prompt[start - self.first : stop - self.first])


def encode(order: Order) -> bytes:
    """An order as bytes."""
    match order:
        case Load():
            return LOAD + json.dumps(asdict(order)).encode()
        case MakeCache():
            return CACHE + json.dumps(asdict(order)).encode()
        case Compute(step):
            return COMPUTE + _pack(step)
        case Stop():
            return STOP


def decode(frame: bytes) -> Order:
    """The order that `encode` was given; a step's requests know the step's tokens only."""
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


def _pack(step: Step) -> bytes:
    """Ids as a line of JSON, then per slice: start, stop, whether it samples, its number of pages, pages, tokens."""
    numbers = array("q")
    for part in step.slices:
        numbers.extend((part.start, part.stop, part.samples, len(part.pages)))
        numbers.extend(part.pages)
        numbers.extend(part.request.tokens(part.start, part.stop))
    return json.dumps([part.request.id for part in step.slices]).encode() + LINE + numbers.tobytes()


def _unpack(body: bytes) -> Step:
    names, _, raw = body.partition(LINE)
    numbers = array("q")
    numbers.frombytes(raw)
    return Step(tuple(_slices(json.loads(names), numbers)))


def _slices(names: list[str], numbers: "array[int]") -> Iterator[Slice]:
    at = 0
    for name in names:
        start, stop, samples, pages = numbers[at : at + 4]
        tokens = at + 4 + pages
        end = tokens + stop - start
        request = Told(name, tuple(numbers[tokens:end]), max_tokens=1, first=start)
        yield Slice(request, start, stop, bool(samples), tuple(numbers[at + 4 : tokens]))
        at = end
