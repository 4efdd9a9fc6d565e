"""A packed row over a paged cache: its integers, made once for all layers, and attention as it suits the device."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tokenpool_engine.compute import padded, products
from tokenpool_engine.compute.padded import Padded
from tokenpool_engine.compute.pages import Cache, Look
from tokenpool_engine.compute.products import Singles
from tokenpool_engine.compute.rows import Rows, Span


@dataclass(frozen=True)
class PagedStep:
    """A step's integers on the device. Rows of single tokens come first."""

    cache: Cache
    ids: Tensor
    positions: Tensor
    samples: Tensor
    """Rows that give a next token."""
    write: Tensor
    """Where keys and values go."""
    singles: tuple[Singles | Padded, ...]
    chunks: tuple[tuple[Span, Tensor], ...]
    """Longer spans, with their rows of the cache in (head, page) order."""
    reached: dict[int, int | None] = field(default_factory=dict)
    """Layers that came here, with their sliding windows: a layer with attention of its own would see the row only."""


def plan(rows: Rows, cache: Cache) -> PagedStep:
    """Everything that is known of a step before its first layer."""
    pages = torch.tensor(rows.pages, dtype=torch.long)
    own = [torch.arange(span.start, span.start + span.size) for span in rows.spans]
    positions = torch.cat(own)
    written = torch.cat(
        [pages[span.pages_at + at // cache.page_tokens] for span, at in zip(rows.spans, own, strict=True)]
    )
    singles = [span for span in rows.spans if span.size == 1]
    chunks = [span for span in rows.spans if span.size > 1]
    tables = list(padded.tables(singles, pages, cache.page_tokens)) if cache.is_padded else []
    parts = (
        torch.tensor(rows.ids, dtype=torch.long),
        positions,
        torch.tensor(rows.sample_rows, dtype=torch.long),
        cache.slots(written, positions % cache.page_tokens),
        *(_chunk_rows(span, pages, cache) for span in chunks),
        *(table.reshape(-1) for table in tables),
    )
    ids, positions, samples, write, *rest = cache.staging.send(parts)
    parted: tuple[Singles | Padded, ...] = tuple(_padded(tables, rest[len(chunks) :], positions))
    if singles and not cache.is_padded:
        parted = (products.plan_singles(singles, rows.pages.tolist(), cache),)
    return PagedStep(
        cache, ids, positions, samples, write, parted, tuple(zip(chunks, rest[: len(chunks)], strict=True))
    )


def attend_rows(query: Tensor, key: Tensor, value: Tensor, step: PagedStep, look: Look) -> Tensor:
    """A row: query [rows, heads, size], key and value [rows, key-value heads, size] → [rows, heads x size]."""
    cache, parts, first = step.cache, [], 0
    cache.write(look.layer, step.write, key, value)
    for group in step.singles:
        parts.append(group.attend(query[first : first + group.count], cache, look))
        first += group.count
    attend_chunk = padded.attend_chunk if cache.is_padded else products.attend_chunk
    for span, rows in step.chunks:
        keys, values = (
            pages.index_select(0, rows).view(cache.kv_heads, -1, cache.size)
            for pages in (cache.keys[look.layer], cache.values[look.layer])
        )
        parts.append(attend_chunk(query[span.first : span.first + span.size], keys, values, span.start, look))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _padded(tables: Sequence[Tensor], sent: Sequence[Tensor], positions: Tensor) -> "list[Padded]":
    """The tables as they arrived on the device, each with its part of the positions."""
    parts, first = [], 0
    for table, numbers in zip(tables, sent, strict=True):
        parts.append(Padded(numbers.view(table.shape), positions[first : first + len(table)]))
        first += len(table)
    return parts


def _chunk_rows(span: Span, pages: Tensor, cache: Cache) -> Tensor:
    count = -(-(span.start + span.size) // cache.page_tokens)
    own = pages[span.pages_at : span.pages_at + count]
    return cache.rows_of(own).T.reshape(-1)
