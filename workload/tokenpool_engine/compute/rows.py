"""A step as flat integers: one packed row of tokens, whose they are and where their cache is. No torch.

What every way of computing a step takes, and what is sent to other ranks.
"""

from array import array
from dataclasses import dataclass
from typing import NamedTuple

from tokenpool_engine.scheduler import Step


class Span(NamedTuple):
    """Rows first … first + size - 1 are positions start … start + size - 1 of one request.

    `pages[pages_at]` is the page of its position 0.
    """

    first: int
    size: int
    start: int
    pages_at: int


@dataclass(frozen=True)
class Rows:
    """One packed row; arrays hold 32-bit integers."""

    ids: "array[int]"
    spans: tuple[Span, ...]
    pages: "array[int]"
    sample_rows: "array[int]"
    """Rows that give a next token, in the order of the step's slices."""


def lay_out(step: Step, page_tokens: int) -> Rows:
    """Flatten a step; slices of one token come first, for they are computed together."""
    ids, pages = array("i"), array("i")
    spans = []
    last: dict[int, int] = {}
    for part in sorted(step.slices, key=lambda part: part.size > 1):
        spans.append(Span(len(ids), part.size, part.start, len(pages)))
        ids.extend(part.request.tokens(part.start, part.stop))
        pages.extend(part.pages[: -(-part.stop // page_tokens)])
        last[id(part)] = len(ids) - 1
    return Rows(ids, tuple(spans), pages, array("i", [last[id(part)] for part in step.slices if part.samples]))
