"""Attention on CPUs: by matrix products, for scaled_dot_product_attention in bfloat16 is several times slower there.

Single tokens of requests (decode) are attended page by page, all requests at once and without padding to the longest;
prompts by blocks of queries.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from tokenpool_engine.compute.pages import NEVER, Cache, Look, hidden
from tokenpool_engine.compute.rows import Span

QUERY_BLOCK: Final = 160


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

    def attend(self, query: Tensor, cache: Cache, look: Look) -> Tensor:
        """One token of each request: query [requests, heads, size] → [requests, heads x size]."""
        return attend_singles(query, cache, self, look)


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
        scores.masked_fill_(hidden(start + first, end, look.window, scores.device), NEVER)
        shares = torch.softmax(scores, dim=-1).view(keys.shape[0], -1, end)
        answers = torch.bmm(shares, values[:, :end]).view(heads, stop - first, size)
        parts.append(answers.transpose(0, 1).reshape(stop - first, heads * size))
    return torch.cat(parts).to(query.dtype)
