"""Keys and values in pages, and attention over one packed row of them, with torch.

A page of one key-value head is one row [page tokens, size], so a batched product reads pages where they are and a
gather copies whole rows of kilobytes. Single tokens of requests (decode) are attended page by page, all requests
at once and without padding to the longest; prompts by blocks of queries. By matrix products, for
scaled_dot_product_attention in bfloat16 is several times slower on CPUs.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import torch
from torch import Tensor

from tokenpool_engine.compute.rows import Rows, Span
from tokenpool_engine.compute.shape import CacheShape

QUERY_BLOCK: Final = 160
NEVER: Final = float("-inf")


class Cache:
    """Per layer keys and values, each [pages x key-value heads, page tokens, size]."""

    def __init__(
        self, shape: CacheShape, pages: int, page_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        rows = (pages * shape.heads, page_tokens, shape.size)
        self.kv_heads, self.page_tokens, self.size = shape.heads, page_tokens, shape.size
        self.dtype, self.device = dtype, device
        self.keys = [torch.zeros(rows, dtype=dtype, device=device) for _ in range(shape.layers)]
        self.values = [torch.zeros(rows, dtype=dtype, device=device) for _ in range(shape.layers)]

    def rows_of(self, pages: Tensor) -> Tensor:
        """Rows of the cache for pages [...], as [..., key-value heads]."""
        return pages[..., None] * self.kv_heads + torch.arange(self.kv_heads, device=pages.device)

    def slots(self, pages: Tensor, offsets: Tensor) -> Tensor:
        """Where the tokens at those places go, flat: [tokens x key-value heads]."""
        return (self.rows_of(pages) * self.page_tokens + offsets[:, None]).reshape(-1)

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Store key and value [tokens, key-value heads, size]."""
        for pages, new in ((self.keys[layer], key), (self.values[layer], value)):
            pages.view(-1, self.size).index_copy_(0, slots, new.reshape(-1, self.size).to(pages.dtype))

    def clear(self, pages: list[int]) -> None:
        """Zero these pages: what a failed step left there may be no numbers, and even a zero share of that is none."""
        rows = self.rows_of(torch.tensor(sorted(set(pages)), dtype=torch.long)).reshape(-1).to(self.device)
        for tensor in (*self.keys, *self.values):
            tensor.index_fill_(0, rows, 0)


@dataclass(frozen=True)
class Singles:
    """Requests with one token in this step, as work items: one per page and owner."""

    count: int
    blocks: int
    pages: slice | Tensor
    """Rows of the cache, item by item; a slice where they are dense, so that nothing is copied."""
    query_rows: Tensor
    """Per (item, head): row of the queries [count x key-value heads]."""
    score_rows: Tensor
    """Per (request, head, block): row of the items' scores."""
    probability_rows: Tensor
    """Per (item, head): row of the probabilities [count x heads x blocks]."""
    positions: Tensor


@dataclass(frozen=True)
class PagedStep:
    """What attention needs of a step. Rows of single tokens come first."""

    cache: Cache
    singles: Singles | None
    chunks: tuple[tuple[Span, Tensor], ...]
    """Longer spans, with their rows of the cache in (head, page) order."""
    write: Tensor
    reached: dict[int, int | None] = field(default_factory=dict)
    """Layers that came here, with their sliding windows: a layer with attention of its own would see the row only."""


def plan(rows: Rows, cache: Cache) -> PagedStep:
    """Index tensors of one step, made once for all layers."""
    pages = torch.tensor(rows.pages, dtype=torch.long)
    written, offsets = [], []
    for span in rows.spans:
        positions = torch.arange(span.start, span.start + span.size)
        written.append(pages[span.pages_at + positions // cache.page_tokens])
        offsets.append(positions % cache.page_tokens)
    singles = [span for span in rows.spans if span.size == 1]
    chunks = [(span, _chunk_rows(span, pages, cache)) for span in rows.spans if span.size > 1]
    return PagedStep(
        cache,
        plan_singles(singles, rows.pages.tolist(), cache) if singles else None,
        tuple(chunks),
        cache.slots(torch.cat(written), torch.cat(offsets)).to(cache.device),
    )


def plan_singles(spans: list[Span], pages: list[int], cache: Cache) -> Singles:
    """Work items of requests with one token each."""
    heads, size = cache.kv_heads, cache.page_tokens
    held = [pages[span.pages_at : span.pages_at + span.start // size + 1] for span in spans]
    blocks = max(map(len, held))
    items = sorted((page, owner, block) for owner, own in enumerate(held) for block, page in enumerate(own))
    page, owner, block = torch.tensor(items).T
    head = torch.arange(heads)
    # Blocks that a short request lacks read item 0; its mask hides them.
    item_of = torch.zeros(len(spans), blocks, dtype=torch.long)
    item_of[owner, block] = torch.arange(len(items))
    first, last = items[0][0], items[-1][0]
    is_dense = last - first + 1 == len(items) and len(set(page.tolist())) == len(items)
    rows = (owner[:, None] * heads + head).reshape(-1)

    def there(numbers: Tensor) -> Tensor:
        return numbers.reshape(-1).to(cache.device)

    return Singles(
        count=len(spans),
        blocks=blocks,
        pages=slice(first * heads, (last + 1) * heads) if is_dense else there(cache.rows_of(page)),
        query_rows=there(rows),
        score_rows=there(item_of[:, None, :] * heads + head[None, :, None]),
        probability_rows=there(rows * blocks + block[:, None].expand(-1, heads).reshape(-1)),
        positions=torch.tensor([span.start for span in spans], device=cache.device),
    )


class Look(NamedTuple):
    """How one layer attends: its index, the factor on scores, and its sliding window."""

    layer: int
    scale: float
    window: int | None


def attend_rows(query: Tensor, key: Tensor, value: Tensor, step: PagedStep, look: Look) -> Tensor:
    """A row: query [rows, heads, size], key and value [rows, key-value heads, size] → [rows, heads x size]."""
    cache, parts = step.cache, []
    cache.write(look.layer, step.write, key, value)
    if step.singles:
        parts.append(attend_singles(query[: step.singles.count], cache, step.singles, look))
    for span, rows in step.chunks:
        keys, values = (
            pages.index_select(0, rows).view(cache.kv_heads, -1, cache.size)
            for pages in (cache.keys[look.layer], cache.values[look.layer])
        )
        parts.append(attend_chunk(query[span.first : span.first + span.size], keys, values, span.start, look))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def attend_singles(query: Tensor, cache: Cache, singles: Singles, look: Look) -> Tensor:
    """One token of each request: query [requests, heads, size] → [requests, heads x size]."""
    count, blocks, heads, page, size = singles.count, singles.blocks, cache.kv_heads, cache.page_tokens, cache.size
    group = query.shape[1] // heads
    keys, values = cache.keys[look.layer][singles.pages], cache.values[look.layer][singles.pages]
    asked = (query.reshape(count * heads, group * size) * look.scale).index_select(0, singles.query_rows)
    scores = torch.bmm(asked.view(-1, group, size).to(cache.dtype), keys.transpose(1, 2))
    scores = scores.view(-1, group * page).index_select(0, singles.score_rows)
    scores = scores.view(count, heads, blocks, group, page).transpose(2, 3).reshape(count, heads, group, blocks * page)
    seen = torch.arange(blocks * page, device=cache.device)
    hidden = seen > singles.positions[:, None]
    if look.window is not None:
        hidden |= seen <= singles.positions[:, None] - look.window
    shares = torch.softmax(scores.masked_fill_(hidden[:, None, None], NEVER), dim=-1)
    shares = shares.view(count, heads, group, blocks, page).transpose(2, 3).reshape(-1, group * page)
    shares = shares.index_select(0, singles.probability_rows).view(-1, group, page)
    answers = torch.bmm(shares, values).view(-1, group * size)
    total = answers.new_zeros(count * heads, group * size).index_add_(0, singles.query_rows, answers)
    return total.view(count, -1).to(query.dtype)


def attend_chunk(query: Tensor, keys: Tensor, values: Tensor, start: int, look: Look) -> Tensor:
    """Positions start … of one request; keys and values are [key-value heads, positions, size]."""
    count, heads, size = query.shape
    asked = (query * look.scale).transpose(0, 1).to(keys.dtype)
    parts = []
    for first in range(0, count, QUERY_BLOCK):
        stop = min(count, first + QUERY_BLOCK)
        end = start + stop
        block = asked[:, first:stop].reshape(keys.shape[0], -1, size)
        scores = torch.bmm(block, keys[:, :end].transpose(1, 2)).view(heads, stop - first, end)
        scores.masked_fill_(_hidden(start + first, end, look.window, scores.device), NEVER)
        shares = torch.softmax(scores, dim=-1).view(keys.shape[0], -1, end)
        answers = torch.bmm(shares, values[:, :end]).view(heads, stop - first, size)
        parts.append(answers.transpose(0, 1).reshape(stop - first, heads * size))
    return torch.cat(parts).to(query.dtype)


def _hidden(first: int, end: int, window: int | None, device: torch.device) -> Tensor:
    """True where positions first … end - 1 may not look: behind themselves, and before their window."""
    asking = torch.arange(first, end, device=device)[:, None]
    seen = torch.arange(end, device=device)[None, :]
    hidden = seen > asking
    return hidden if window is None else hidden | (seen <= asking - window)


def _chunk_rows(span: Span, pages: Tensor, cache: Cache) -> Tensor:
    count = -(-(span.start + span.size) // cache.page_tokens)
    own = pages[span.pages_at : span.pages_at + count]
    return cache.rows_of(own).T.reshape(-1).to(cache.device)
