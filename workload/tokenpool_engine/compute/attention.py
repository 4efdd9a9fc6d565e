"""Paged attention over one packed row, registered with transformers so that any decoder's own forward uses it.

What belongs to a step travels as a keyword argument of the forward call; the model itself is never changed.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

NAME: Final = "tokenpool_paged"
# What some models add to attention and this one does not compute: sinks, softcapped scores, a bias by position,
# sparse choices of keys.
UNKNOWN_TERMS: Final = ("s_aux", "sinks", "softcap", "position_bias", "indices", "block_indices")


@dataclass(frozen=True)
class Span:
    """One request's part of the row: rows first … first + size - 1 are its positions start … start + size - 1.

    `slots` are the cache slots of its positions 0 … start + size - 1, in order.
    """

    first: int
    size: int
    start: int
    slots: Tensor


@dataclass(frozen=True)
class PagedStep:
    """What attention needs of a step. `write` gives the cache slot of each row, shape [rows]."""

    spans: tuple[Span, ...]
    write: Tensor
    keys: list[Tensor]
    """Per layer [slots, key-value heads, head size]."""
    values: list[Tensor]
    reached: dict[int, int | None] = field(default_factory=dict)
    """Layers that came here, with their sliding windows.

    A layer with attention of its own would look at nothing but the step's row."""


def attend(  # noqa: PLR0917 - transformers calls it so
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    paged_step: PagedStep | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Write the row's keys and values, then let each request look at its own.

    query is [1, heads, rows, size], key and value are [1, key-value heads, rows, size]; the result is
    [1, rows, heads, size].
    """
    if paged_step is None:
        raise ValueError(f"{NAME} attention needs a paged_step")
    unknown = [name for name in UNKNOWN_TERMS if others.get(name) is not None]
    if attention_mask is not None:
        unknown.append("a mask of its own")
    if unknown:
        raise ValueError(f"attention with {', '.join(unknown)} is not supported")
    layer = module.layer_idx
    if layer in paged_step.reached:
        raise ValueError("a layer that attends twice is not supported")
    window = others.get("sliding_window")
    paged_step.reached[layer] = window
    keys, values = paged_step.keys[layer], paged_step.values[layer]
    keys.index_copy_(0, paged_step.write, key[0].transpose(0, 1).to(keys.dtype))
    values.index_copy_(0, paged_step.write, value[0].transpose(0, 1).to(values.dtype))
    parts = [_look(query, (keys, values), span, scaling, window) for span in paged_step.spans]
    return torch.cat(parts, dim=1), None


def _look(query: Tensor, cache: tuple[Tensor, Tensor], span: Span, scaling: float | None, window: int | None) -> Tensor:
    """Attention of one span over its own positions."""
    keys, values = cache
    asked = query[:, :, span.first : span.first + span.size]
    seen_keys = keys.index_select(0, span.slots).transpose(0, 1)[None]
    seen_values = values.index_select(0, span.slots).transpose(0, 1)[None]
    groups = asked.shape[1] // seen_keys.shape[1]
    answer = functional.scaled_dot_product_attention(
        asked,
        seen_keys.repeat_interleave(groups, dim=1),
        seen_values.repeat_interleave(groups, dim=1),
        attn_mask=_mask(span, window, asked.device),
        scale=scaling,
    )
    return answer.transpose(1, 2)


def _mask(span: Span, window: int | None, device: torch.device) -> Tensor | None:
    """True where a row may look: at itself and before, inside the window if the layer has one."""
    if span.size == 1 and window is None:
        return None
    asking = torch.arange(span.start, span.start + span.size, device=device)[:, None]
    seen = torch.arange(span.start + span.size, device=device)[None, :]
    allowed = seen <= asking
    return allowed if window is None else allowed & (seen > asking - window)


def _no_mask(*_arguments: Any, **_keywords: Any) -> None:
    """The mask is made per span; transformers should build none."""


def register() -> None:
    """Make the name known to transformers. Harmless when repeated."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, _no_mask)
