"""Keys and values in pages. A page of one key-value head is one row [page tokens, size], so a batched product reads
pages where they are and a gather copies whole rows of kilobytes.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

from tokenpool_engine.compute.shape import CacheShape
from tokenpool_engine.compute.staging import Staging

NEVER: Final = float("-inf")
PADDED_DEVICES = frozenset({"cuda"})
"""Kinds of device on which attention is computed by padded.py; on the others by products.py."""


class Cache:
    """Per layer keys and values, each [pages x key-value heads, page tokens, size]."""

    def __init__(
        self, shape: CacheShape, pages: int, page_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        rows = (pages * shape.heads, page_tokens, shape.size)
        self.kv_heads, self.page_tokens, self.size = shape.heads, page_tokens, shape.size
        self.dtype, self.device = dtype, device
        self.is_padded = device.type in PADDED_DEVICES
        self.staging = Staging(device)
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


class Look(NamedTuple):
    """How one layer attends: its index, the factor on scores, and its sliding window."""

    layer: int
    scale: float
    window: int | None


def hidden(first: int, end: int, window: int | None, device: torch.device) -> Tensor:
    """True where positions first … end - 1 may not look: behind themselves, and before their window."""
    asking = torch.arange(first, end, device=device)[:, None]
    seen = torch.arange(end, device=device)[None, :]
    hidden = seen > asking
    return hidden if window is None else hidden | (seen <= asking - window)
