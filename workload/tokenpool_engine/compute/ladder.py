"""Which shapes of a decoding step are recorded, and how a step is filled up to one of them. Integers only, no torch."""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tokenpool_engine.compute.rows import Rows


class Rung(NamedTuple):
    """Steps of up to `rows` requests that hold up to `blocks` pages each."""

    rows: int
    blocks: int

    @property
    def size(self) -> int:
        """Integers of a step: ids, positions, tables of pages."""
        return self.rows * (2 + self.blocks)


def rungs(max_rows: int, max_blocks: int, most_gathered: int) -> tuple[Rung, ...]:
    """Largest first, so that what the first one needs is enough for the others.

    Rows double from rung to rung, blocks quadruple: a row too many costs a row of every product, a block too many only
    its reading. Shapes that gather more than `most_gathered` pages are left out.
    """
    found = [
        Rung(rows, blocks)
        for rows in sizes(1, 2, max_rows)
        for blocks in sizes(4, 4, max_blocks)
        if rows * blocks <= most_gathered
    ]
    return tuple(sorted(found, key=lambda rung: (rung.rows * rung.blocks, rung.rows), reverse=True))


def sizes(first: int, factor: int, top: int) -> Iterator[int]:
    """`first`, multiplied until `top`, which ends it whatever it is."""
    while first < top:
        yield first
        first *= factor
    yield top


def rung_for(rows: Rows, page_tokens: int, ladder: Sequence[Rung]) -> Rung | None:
    """The smallest rung that a step fits on; None when it holds more than single tokens, or is too large."""
    if any(span.size > 1 for span in rows.spans):
        return None
    blocks = max(span.start // page_tokens + 1 for span in rows.spans)
    fitting = (rung for rung in ladder if rung.rows >= len(rows.spans) and rung.blocks >= blocks)
    return min(fitting, default=None)


def fill(rows: Rows, rung: Rung, page_tokens: int, scratch: int) -> "array[int]":
    """A step's ids, positions and tables of pages as 64-bit integers, filled up to the rung.

    Rows beyond the step's own are tokens at position 0 of the page `scratch`, which no request owns. Tables are filled
    up with their first page: it holds numbers, and nobody looks there.
    """
    spare = rung.rows - len(rows.spans)
    packed = array("q", rows.ids)
    packed.extend([0] * spare)
    packed.extend(span.start for span in rows.spans)
    packed.extend([0] * spare)
    for span in rows.spans:
        own = array("q", rows.pages[span.pages_at : span.pages_at + span.start // page_tokens + 1])
        packed.extend(own)
        packed.extend([own[0]] * (rung.blocks - len(own)))
    packed.extend([scratch] * (spare * rung.blocks))
    return packed
