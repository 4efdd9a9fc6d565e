"""Proves at the start that a model's steps are right; a model that would answer wrongly must not become ready.

The stock forward is compared with itself: a prompt has one answer, whole and alone or in chunks behind another one. The
lean loops are compared with the stock forward, step by step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from tokenpool_engine.compute.rows import lay_out
from tokenpool_engine.compute.runner import Model
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.failure import Reason, StartError
from tokenpool_engine.request import Request
from tokenpool_engine.scheduler import Slice, Step

# Rounding moves logits by some hundredths of their size; positions that are ignored, by three tenths and more.
TOLERANCE: Final = 0.2
LENGTH, CUT, OTHER, LONG = 12, 7, 5, 41
# Ids all over the vocabulary. The first ones are control tokens in many models, and a prompt of nothing else is so far
# from all training that bfloat16's rounding alone moves the logits of SmolLM2 by four tenths.
GOLDEN: Final = 0.618034
PAGES: Final = 8
"""Pages that the steps below touch."""


@dataclass(frozen=True)
class Proof:
    """What the stock forward computed for `steps()`, and each layer's sliding window."""

    logits: Sequence[Tensor]
    windows: Mapping[int, int | None]


def steps(vocabulary: int, page_tokens: int) -> Iterator[Step]:
    """A whole prompt; another one, and the first again in two chunks; one over a page's end, and two that decode."""
    yield Step((_slice("whole", 0, range(LENGTH), LENGTH, vocabulary),))
    cut = _slice("cut", 2, range(CUT), LENGTH, vocabulary)
    yield Step((_slice("other", 1, range(OTHER), OTHER, vocabulary), cut))
    yield Step((_slice("cut", 2, range(CUT, LENGTH), LENGTH, vocabulary),))
    # Not one behind the other, as pages in use for long are not.
    pages = tuple(range(PAGES - 1, PAGES - 1 - -(-LONG // page_tokens), -1))
    long = _slice("long", 0, range(LONG - 1), LONG, vocabulary).request
    yield Step((Slice(long, 0, LONG - 1, False, pages),))
    whole = _slice("whole", 0, range(LENGTH - 1, LENGTH), LENGTH, vocabulary)
    yield Step((whole, Slice(long, LONG - 1, LONG, True, pages)))


def prove(model: Stock, config: Any) -> Proof:
    """Raises StartError for a model that cannot be computed, or not rightly, in packed steps."""
    try:
        found = [model.logits(lay_out(step, model.page_tokens)) for step in steps(config.vocab_size, model.page_tokens)]
    except (MemoryError, torch.OutOfMemoryError, StartError):
        raise
    except Exception as error:
        raise StartError(Reason.MODEL_UNSUPPORTED, f"the model cannot be computed: {error}") from error
    refuse_lost_windows(config, model.windows)
    difference = max(distance(found[0][0], found[2][0]), distance(found[0][0], found[4][0]))
    if not difference < TOLERANCE:
        text = f"a prompt in chunks gives logits that are {difference:.0%} off those of the whole one"
        raise StartError(Reason.MODEL_UNSUPPORTED, text)
    return Proof(found, model.windows)


def difference(model: Model, proof: Proof, vocabulary: int) -> float:
    """How far another way to compute is from the stock forward, in parts of the logits' spread."""
    found = [model.logits(lay_out(step, model.page_tokens)) for step in steps(vocabulary, model.page_tokens)]
    pairs = [pair for mine, theirs in zip(found, proof.logits, strict=True) for pair in zip(mine, theirs, strict=True)]
    return max(distance(mine.to(theirs.device), theirs) for mine, theirs in pairs)


def refuse_lost_windows(config: Any, windows: Mapping[int, int | None]) -> None:
    """Raises StartError when the config has a sliding window that attention was not told; `windows` is by layer."""
    kinds = getattr(config, "layer_types", None) or ()
    lost = any(kind == "sliding_attention" and windows.get(layer) is None for layer, kind in enumerate(kinds))
    if not kinds and getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        lost = not any(windows.values())
    if lost:
        raise StartError(Reason.MODEL_UNSUPPORTED, "the model keeps its sliding window from attention")


def distance(one: Tensor, other: Tensor) -> float:
    """How far two rows of logits are apart, in parts of their spread."""
    return float((one - other).norm() / (other - other.mean()).norm())


def _slice(name: str, page: int, part: range, length: int, vocabulary: int) -> Slice:
    ids = tuple(1 + int(GOLDEN * (place + 1) * vocabulary) % (vocabulary - 1) for place in range(length))
    return Slice(Request(name, ids, max_tokens=1), part.start, part.stop, part.stop == length, (page,))
