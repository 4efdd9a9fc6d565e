"""Who computes a shard's steps: this process alone, or together with other ranks that it leads as rank 0.

Rank 0 schedules, samples and serves; a step goes to the others as integers, then all of them run the same forward.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor
from transformers import AutoConfig

from tokenpool_engine.compute import group, loader
from tokenpool_engine.compute.loader import Loaded
from tokenpool_engine.compute.orders import Compute, Load, MakeCache
from tokenpool_engine.compute.plan import refuse_too_few_gpus, refuse_unsplittable
from tokenpool_engine.compute.ranks import Ranks
from tokenpool_engine.compute.rows import Rows
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.compute.tuning import Tuning
from tokenpool_engine.failure import Reason, StartError

T = TypeVar("T")


class Leading(Stock):
    """A stock model that takes the other ranks along. A failure ends the shard: the ranks are no longer in step."""

    def __init__(self, ranks: Ranks, model: Any, pages: int, page_tokens: int) -> None:
        super().__init__(model, pages, page_tokens)
        self._ranks = ranks

    def logits(self, rows: Rows) -> Tensor:
        """As the stock model's."""
        try:
            self._ranks.tell(Compute(rows))
            return super().logits(rows)
        except Exception as error:
            self._ranks.fail(error)
            raise


class Alone:
    """One process, the usual case."""

    size = 1

    def load(self, folder: Path, dtype: str) -> Loaded:
        """Load the model. Raises StartError."""
        return loader.load(folder, dtype)

    def stock(self, loaded: Loaded, pages: int, page_tokens: int) -> Stock:
        """The model's own forward over a KV cache of so many pages."""
        return Stock(loaded.model, pages, page_tokens)

    def guard(self, work: Callable[[], T]) -> T:
        """Do what computes steps."""
        return work()

    def watch(self, lost: Callable[[StartError], None]) -> None:
        """Call `lost` once when the shard cannot go on for want of a rank."""

    def close(self) -> None:
        """End what was started."""


class Led(Alone):
    """Rank 0 and the other ranks, which start with the first `load`. Every method raises StartError for a lost rank."""

    def __init__(self, size: int, threads: int, tuning: Tuning | None = None) -> None:
        self.size, self._threads, self._tuning = size, threads, tuning or Tuning()
        self._ranks: Ranks | None = None

    def load(self, folder: Path, dtype: str) -> Loaded:
        """Load the model on all ranks; what cannot be split is refused before any is started."""
        loader.read_config(folder)
        refuse_unsplittable(_config(folder), self.size)
        refuse_too_few_gpus(self.size)
        ranks = self._joined()
        ranks.tell(Load(str(folder), dtype, self._tuning.matmul_precision, self._tuning.cudnn_benchmark))
        loaded = ranks.guard(lambda: loader.load(folder, dtype, self.size))
        ranks.answered()
        return loaded

    def stock(self, loaded: Loaded, pages: int, page_tokens: int) -> Stock:
        """Each rank makes a cache for its heads."""
        ranks = self._joined()
        ranks.tell(MakeCache(pages, page_tokens))
        leading = Leading(ranks, loaded.model, pages, page_tokens)
        ranks.answered()
        return leading

    def guard(self, work: Callable[[], T]) -> T:
        """Do what computes steps."""
        return self._joined().guard(work)

    def watch(self, lost: Callable[[StartError], None]) -> None:
        """Call `lost` once, from some thread, when a rank is lost."""
        self._joined().watch(lost)

    def close(self) -> None:
        """End the other ranks."""
        if self._ranks:
            self._ranks.close()
            group.leave()
            self._ranks = None

    def _joined(self) -> Ranks:
        if self._ranks is None:
            self._ranks = Ranks(self.size, self._threads)
            self._ranks.join()
        return self._ranks


def team(size: int, threads: int, tuning: Tuning) -> Alone:
    """Who computes, for spec.shards.tensorParallel. `threads` are the CPU threads of each rank."""
    tuning.apply()
    return Alone() if size == 1 else Led(size, threads, tuning)


def _config(folder: Path) -> object:
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a config from anywhere may break anything in there
        raise StartError(Reason.MODEL_UNSUPPORTED, f"{folder}: {error}") from error
    found: object = config
    return found
