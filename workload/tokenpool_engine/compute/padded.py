"""Attention on GPUs: scaled_dot_product_attention over shapes that a graph can keep.

Single tokens of requests (decode) are padded to the longest table of pages; what is not a request's own is hidden from
it. A GPU has the arithmetic to spare, and a fixed shape is what makes a step replayable. Prompts run through the flash
kernel where there is one for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from tokenpool_engine.compute.pages import Cache, Look, hidden
from tokenpool_engine.compute.rows import Span

MOST_GATHERED: Final = 8192
"""Pages that are gathered at once at most; it bounds what decoding takes beside the cache."""


@dataclass(frozen=True)
class Padded:
    """Single tokens of requests: their pages [tokens, blocks], and their positions [tokens].

    A table is filled up with any pages that hold numbers.
    """

    pages: Tensor
    positions: Tensor
    masks: dict[int | None, Tensor] = field(default_factory=dict)
    """By window, made by the first layer that needs it."""

    @property
    def count(self) -> int:
        """Tokens."""
        return len(self.positions)

    def attend(self, query: Tensor, cache: Cache, look: Look) -> Tensor:
        """One token of each request: query [tokens, heads, size] → [tokens, heads x size]."""
        count, blocks = self.pages.shape
        rows = cache.rows_of(self.pages).transpose(1, 2).reshape(-1)
        keys, values = (
            part[look.layer].index_select(0, rows).view(count, cache.kv_heads, blocks * cache.page_tokens, cache.size)
            for part in (cache.keys, cache.values)
        )
        # The heads of a group are so many queries of one key-value head: nothing is repeated.
        asked = query.reshape(count, cache.kv_heads, -1, cache.size).to(cache.dtype)
        found = scaled_dot_product_attention(asked, keys, values, self.visible(cache, look.window), scale=look.scale)
        return found.reshape(count, -1).to(query.dtype)

    def visible(self, cache: Cache, window: int | None) -> Tensor:
        """Where a token may look: [tokens, 1, 1, places]."""
        if window not in self.masks:
            places = torch.arange(self.pages.shape[1] * cache.page_tokens, device=cache.device)
            mine = self.positions[:, None]
            seen = places <= mine
            if window is not None:
                seen &= places > mine - window
            self.masks[window] = seen[:, None, None]
        return self.masks[window]

    def slots(self, cache: Cache) -> Tensor:
        """Where their keys and values go, as `Cache.write` takes it."""
        block = self.positions // cache.page_tokens
        return cache.slots(self.pages.gather(1, block[:, None])[:, 0], self.positions % cache.page_tokens)


def tables(spans: Sequence[Span], pages: Tensor, page_tokens: int) -> Iterator[Tensor]:
    """Tables of pages [tokens, blocks] of spans of one token, in order; several where one would be too large."""
    held = [pages[span.pages_at : span.pages_at + span.start // page_tokens + 1] for span in spans]
    for group in groups([len(own) for own in held]):
        yield _table(held[group])


def groups(blocks: Sequence[int]) -> Iterator[slice]:
    """Cut tables of so many blocks into runs that may be gathered at once, each padded to its longest."""
    first = longest = 0
    for at, own in enumerate(blocks):
        longest = max(longest, own)
        if at > first and longest * (at + 1 - first) > MOST_GATHERED:
            yield slice(first, at)
            first, longest = at, own
    if blocks:
        yield slice(first, len(blocks))


def _table(held: Sequence[Tensor]) -> Tensor:
    """Fill up with each one's own first page."""
    table = torch.stack([own[0] for own in held])[:, None].repeat(1, max(map(len, held)))
    for row, own in zip(table, held, strict=True):
        row[: len(own)] = own
    return table


def attend_chunk(query: Tensor, keys: Tensor, values: Tensor, start: int, look: Look) -> Tensor:
    """Positions start … of one request; keys and values are [key-value heads, positions, size]."""
    count, heads, size = query.shape
    end = start + count
    asked = query.transpose(0, 1)[None].to(keys.dtype)
    keys, values = keys[None, :, :end], values[None, :, :end]
    windowed = look.window is not None and look.window < end
    # The flash kernel alone knows groups, and it knows neither masks nor float32.
    grouped = not windowed and keys.dtype != torch.float32
    if not grouped:
        keys, values = (part.repeat_interleave(heads // part.shape[1], dim=1) for part in (keys, values))
    mask = ~hidden(start, end, look.window, query.device) if windowed else causal_lower_right(count, end)
    found = scaled_dot_product_attention(asked, keys, values, mask, scale=look.scale, enable_gqa=grouped)
    return found[0].transpose(0, 1).reshape(count, heads * size).to(query.dtype)
