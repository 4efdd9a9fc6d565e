"""Paged attention over one packed row, registered with transformers so that any decoder's own forward uses it.

What belongs to a step travels as a keyword argument of the forward call; the model itself is never changed.
"""

from typing import Any, Final

from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from tokenpool_engine.compute.paged import PagedStep, attend_rows
from tokenpool_engine.compute.pages import Look

NAME: Final = "tokenpool_paged"
# What some models add to attention and this one does not compute: sinks, softcapped scores, a bias by position,
# sparse choices of keys.
UNKNOWN_TERMS: Final = ("s_aux", "sinks", "softcap", "position_bias", "indices", "block_indices")


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
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    answer = attend_rows(q, k, v, paged_step, Look(layer, scale, window))
    return answer.view(1, query.shape[2], query.shape[1], -1), None


def register() -> None:
    """Make the function known to transformers under NAME; the step's own spans replace masks."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, lambda *_args, **_kwargs: None)
