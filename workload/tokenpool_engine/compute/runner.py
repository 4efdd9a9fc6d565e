"""Computes a step: the only room that holds tensors. It does what the scheduler planned and decides nothing."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tokenpool_engine.compute.attention import PagedStep, Span
from tokenpool_engine.compute.loader import Loaded
from tokenpool_engine.compute.sampling import pick
from tokenpool_engine.request import Picked
from tokenpool_engine.scheduler import Slice, Step


@dataclass(frozen=True)
class CacheShape:
    """What one token's keys and values take."""

    layers: int
    heads: int
    head_size: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of all layers."""
        return 2 * self.layers * self.heads * self.head_size * self.dtype.itemsize


def cache_shape(loaded: Loaded) -> CacheShape:
    """Read from the model's config."""
    config = loaded.model.config
    heads = config.num_attention_heads
    return CacheShape(
        layers=config.num_hidden_layers,
        heads=getattr(config, "num_key_value_heads", None) or heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=loaded.model.dtype,
    )


class Runner:
    """The model and its KV cache of `slots` tokens."""

    def __init__(self, loaded: Loaded, slots: int, page_tokens: int) -> None:
        shape = cache_shape(loaded)
        self._model, self._device, self._page_tokens = loaded.model, loaded.device, page_tokens
        size = (slots, shape.heads, shape.head_size)
        self._keys = [torch.zeros(size, dtype=shape.dtype, device=self._device) for _ in range(shape.layers)]
        self._values = [torch.zeros(size, dtype=shape.dtype, device=self._device) for _ in range(shape.layers)]

    @torch.inference_mode()
    def run(self, step: Step) -> dict[str, Picked]:
        """Compute the row and pick the next token of each slice that samples: request id → what was picked."""
        logits, _ = self.forward(step)
        asking = [part.request for part in step.slices if part.samples]
        return {request.id: picked for request, picked in zip(asking, pick(logits, asking), strict=True)}

    @torch.inference_mode()
    def forward(self, step: Step) -> tuple[Tensor, dict[int, int | None]]:
        """Compute the row: float32 logits of the slices that sample, and the sliding window of each layer."""
        tokens = [token for part in step.slices for token in part.request.tokens(part.start, part.stop)]
        positions = [position for part in step.slices for position in range(part.start, part.stop)]
        paged = self._paged(step, [self._slots(part) for part in step.slices])
        logits = self._model(
            input_ids=self._row(tokens),
            position_ids=self._row(positions),
            use_cache=False,
            logits_to_keep=self._last_rows(step),
            paged_step=paged,
        ).logits[0]
        if len(paged.reached) != len(self._keys):
            raise ValueError(f"{len(paged.reached)} of {len(self._keys)} layers use the paged cache")
        return logits.float(), paged.reached

    def _row(self, numbers: list[int]) -> Tensor:
        return torch.tensor([numbers], device=self._device)

    def _last_rows(self, step: Step) -> Tensor:
        """Rows whose logits are wanted."""
        end, rows = 0, []
        for part in step.slices:
            end += part.size
            if part.samples:
                rows.append(end - 1)
        return torch.tensor(rows, device=self._device, dtype=torch.long)

    def _slots(self, part: Slice) -> Tensor:
        """Cache slots of positions 0 … stop - 1."""
        positions = torch.arange(part.stop)
        pages = torch.tensor(part.pages)
        return (pages[positions // self._page_tokens] * self._page_tokens + positions % self._page_tokens).to(
            self._device
        )

    def _paged(self, step: Step, slots: list[Tensor]) -> PagedStep:
        spans, first = [], 0
        for part, seen in zip(step.slices, slots, strict=True):
            spans.append(Span(first, part.size, part.start, seen))
            first += part.size
        write = torch.cat([seen[span.start :] for span, seen in zip(spans, slots, strict=True)])
        return PagedStep(tuple(spans), write, self._keys, self._values)
