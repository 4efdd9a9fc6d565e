"""Runs steps on whatever computes them, and picks the next tokens."""

from typing import Protocol

from torch import Tensor

from tokenpool_engine.compute.rows import Rows, lay_out
from tokenpool_engine.compute.sampling import pick
from tokenpool_engine.request import Picked
from tokenpool_engine.scheduler import Step


class Model(Protocol):
    """A way to compute: the stock forward, the lean loop, the compiled kernel."""

    page_tokens: int

    def logits(self, rows: Rows) -> Tensor:
        """float32 [samples, vocabulary] of the rows that sample."""

    def clear(self, pages: list[int]) -> None:
        """Zero these pages of the cache."""

    def close(self) -> None:
        """Give back threads, processes and memory."""


class Runner:
    """A model, computing steps."""

    def __init__(self, model: Model) -> None:
        self._model = model
        # Some find the best ids by themselves, without making all logits.
        self._best = getattr(model, "best", None)

    @property
    def padded_rows(self) -> int:
        """Rows that the model has computed for nobody, to fill up a shape."""
        return getattr(self._model, "padded_rows", 0)

    def run(self, step: Step) -> dict[str, Picked]:
        """Compute the row and pick the next token of each slice that samples: request id → what was picked."""
        rows = lay_out(step, self._model.page_tokens)
        asking = [part.request for part in step.slices if part.samples]
        try:
            if self._best and all(request.sampling.is_plain for request in asking):
                picked = [Picked(token) for token in self._best(rows)]
            else:
                picked = pick(self._model.logits(rows), asking)
        except Exception:
            self._model.clear([page for part in step.slices for page in part.pages])
            raise
        return {request.id: one for request, one in zip(asking, picked, strict=True)}

    def close(self) -> None:
        """Give back what the model holds."""
        self._model.close()
