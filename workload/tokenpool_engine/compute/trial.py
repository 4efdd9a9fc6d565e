"""What the largest steps take beside weights and cache, measured by computing them. On GPUs only: there the number is
exact, and what is left is the cache's.
"""

from array import array
from collections.abc import Iterator

import torch

from tokenpool_engine.compute import selfcheck
from tokenpool_engine.compute.draw import Bounds, draw
from tokenpool_engine.compute.loader import Loaded
from tokenpool_engine.compute.padded import MOST_GATHERED
from tokenpool_engine.compute.rows import Rows, Span
from tokenpool_engine.compute.stock import Stock

FREE = Bounds(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, chance=0.5)


def step_bytes(loaded: Loaded, budget: int, sequences: int, length: int, page_tokens: int) -> int:
    """Bytes at the peak. Raises StartError for a model that cannot be computed at all."""
    stock = Stock(loaded.model, selfcheck.PAGES, page_tokens)
    # Also warms up: libraries keep what they take at first use.
    selfcheck.prove(stock, loaded.model.config)
    torch.cuda.reset_peak_memory_stats(loaded.device)
    before = torch.cuda.memory_allocated(loaded.device)
    for rows in largest(budget, sequences, length, page_tokens):
        draw(stock.logits(rows), [FREE] * len(rows.sample_rows))
    return int(torch.cuda.max_memory_allocated(loaded.device)) - before


def largest(budget: int, sequences: int, length: int, page_tokens: int) -> Iterator[Rows]:
    """The longest chunk at the end of the longest context; then all sequences decoding over as many pages as one
    gathers. All in page 0: what is read is of no interest, only how much.
    """
    size = min(budget, length)
    yield _row([(length - size, size)], page_tokens)
    blocks = max(min(MOST_GATHERED // sequences, length // page_tokens), 1)
    yield _row([(min(blocks * page_tokens, length) - 1, 1)] * sequences, page_tokens)


def _row(parts: list[tuple[int, int]], page_tokens: int) -> Rows:
    """Slices (start, size), each of which samples."""
    ids, pages, spans, samples = array("i"), array("i"), [], array("i")
    for start, size in parts:
        spans.append(Span(len(ids), size, start, len(pages)))
        ids.extend([1] * size)
        pages.extend([0] * -(-(start + size) // page_tokens))
        samples.append(len(ids) - 1)
    return Rows(ids, tuple(spans), pages, samples)
