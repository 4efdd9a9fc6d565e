"""The lean loop with its decoding steps recorded as CUDA graphs: one launch a step in place of a dozen for each layer.

Each recording is of a shape (ladder.py) and reads its step from the same place. Everything but the recording itself
also runs without a GPU, and is tested there.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor

from tokenpool_engine.compute.ladder import Rung, fill, rung_for, rungs
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import Llama
from tokenpool_engine.compute.padded import MOST_GATHERED, Padded
from tokenpool_engine.compute.paged import PagedStep
from tokenpool_engine.compute.rows import Rows

log = logging.getLogger(__name__)

NO_NUMBER: Final = -1
Launch = Callable[[], None]


class NotRecorded(Exception):
    """The device refuses to record a step; the text says why."""


class Recorder:
    """Makes of what launches kernels something that launches them all at once. The recordings share their memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, launch: Launch) -> Launch:
        """The recording of `launch`. Raises NotRecorded."""
        try:
            self._warm_up(launch)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                launch()
        except RuntimeError as error:
            raise NotRecorded(f"steps cannot be recorded as CUDA graphs: {error}") from error
        replay: Launch = graph.replay
        return replay

    def _warm_up(self, launch: Launch) -> None:
        """Libraries choose kernels and take workspaces at first use, which must not be part of a recording."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            launch()
        present.wait_stream(self._stream)


class Graphed:
    """The lean loop; steps in which every request decodes are replayed for up to `max_rows` of them."""

    def __init__(
        self,
        model: Llama,
        pages: int,
        page_tokens: int,
        max_rows: int,
        record: Callable[[Launch], Launch] | None = None,
    ) -> None:
        """`record`: how a step is recorded, as CUDA graphs unless told. Raises NotRecorded."""
        device = model.embedding.device
        # One page more: where rows that are nobody's write.
        self._lean, self._scratch = Lean(model, pages + 1, page_tokens), pages
        self.page_tokens = page_tokens
        self.padded_rows = 0
        """Rows computed so far that were nobody's."""
        self._ladder = rungs(max_rows, -(-len(model.cosine) // page_tokens), MOST_GATHERED)
        self._inputs = torch.zeros(max(rung.size for rung in self._ladder), dtype=torch.long, device=device)
        self._logits = torch.zeros(max_rows, model.vocabulary, device=device)
        self._best = torch.zeros(max_rows, dtype=torch.long, device=device)
        self._launches = self._record(record or Recorder(device))

    def logits(self, rows: Rows) -> Tensor:
        """float32 [samples, vocabulary]."""
        samples = self._replay(rows)
        return self._lean.logits(rows) if samples is None else self._logits.index_select(0, samples)

    def best(self, rows: Rows) -> list[int]:
        """The best id of each row that samples."""
        samples = self._replay(rows)
        found = greedy(self._lean.logits(rows)) if samples is None else self._best.index_select(0, samples)
        ids: list[int] = found.tolist()
        if NO_NUMBER in ids:
            raise ValueError("the model's logits are not numbers")
        return ids

    def clear(self, pages: list[int]) -> None:
        """Zero these pages."""
        self._lean.clear(pages)

    def close(self) -> None:
        """Give back the recordings."""
        self._launches.clear()

    @torch.inference_mode()
    def _record(self, record: Callable[[Launch], Launch]) -> dict[Rung, Launch]:
        # The page of row 0 is read while recording.
        self._inputs.fill_(0)
        found = {rung: record(partial(self._compute, rung)) for rung in self._ladder}
        log.info("recorded %d shapes of decoding steps", len(found))
        return found

    @torch.inference_mode()
    def _replay(self, rows: Rows) -> Tensor | None:
        """Compute a step by its recording: the rows that sample, on the device. None: there is no recording of it."""
        rung = rung_for(rows, self.page_tokens, self._ladder)
        if rung is None:
            return None
        packed = torch.frombuffer(fill(rows, rung, self.page_tokens, self._scratch), dtype=torch.long)
        samples = torch.tensor(rows.sample_rows, dtype=torch.long)
        sent, samples = self._lean.cache.staging.send([packed, samples])
        self._inputs[: rung.size].copy_(sent)
        self._launches[rung]()
        self.padded_rows += rung.rows - len(rows.ids)
        return samples

    def _compute(self, rung: Rung) -> None:
        """A decoding step of this shape, from the inputs to the outputs: all of it on the device, nothing allocated
        that outlives it.
        """
        count, blocks = rung
        ids, positions, tables = torch.split(self._inputs[: rung.size], [count, count, count * blocks])
        decode = Padded(tables.view(count, blocks), positions)
        cache, everyone = self._lean.cache, torch.arange(count, device=ids.device)
        step = PagedStep(cache, ids, positions, everyone, decode.slots(cache), (decode,), ())
        logits = self._lean.head(self._lean.hidden(step))
        self._logits[:count].copy_(logits)
        self._best[:count].copy_(greedy(logits))


def greedy(logits: Tensor) -> Tensor:
    """The best id of each row; NO_NUMBER where logits are no numbers."""
    values, ids = logits.max(dim=-1)
    return ids.masked_fill(values.isnan(), NO_NUMBER)
