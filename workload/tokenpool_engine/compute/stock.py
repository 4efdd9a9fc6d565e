"""Computes a step with the model's own Hugging Face forward and paged attention: any decoder, nothing reimplemented."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tokenpool_engine.compute.paged import plan
from tokenpool_engine.compute.pages import Cache
from tokenpool_engine.compute.rows import Rows
from tokenpool_engine.compute.shape import cache_shape


class Stock:
    """The model as it came, over a cache of so many pages."""

    def __init__(self, model: Any, pages: int, page_tokens: int) -> None:
        self._model = model
        self.page_tokens = page_tokens
        shape = cache_shape(model)
        self._cache = Cache(shape, pages, page_tokens, model.dtype, model.device)
        self._layers = shape.layers
        self.windows: Mapping[int, int | None] = {}
        """Of the latest step: the sliding window that each layer told attention."""

    @torch.inference_mode()
    def logits(self, rows: Rows) -> Tensor:
        """float32 [samples, vocabulary]."""
        step = plan(rows, self._cache)
        found: Tensor = self._model(
            input_ids=step.ids[None],
            position_ids=step.positions[None],
            use_cache=False,
            logits_to_keep=step.samples,
            paged_step=step,
        ).logits[0]
        if len(step.reached) != self._layers:
            raise ValueError(f"{len(step.reached)} of {self._layers} layers use the paged cache")
        self.windows = step.reached
        return found.float()

    def clear(self, pages: list[int]) -> None:
        """Zero these pages."""
        self._cache.clear(pages)

    def close(self) -> None:
        """Nothing to end."""
