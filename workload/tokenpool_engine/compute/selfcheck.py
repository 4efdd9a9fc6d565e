"""Proves at the start that a model's steps are right; a model that would answer wrongly must not become ready.

It compares with nothing from outside: a prompt has one answer, whole and alone or in chunks behind another one.
"""

from typing import Any, Final, Protocol

import torch
from torch import Tensor

from tokenpool_engine.failure import Reason, StartError
from tokenpool_engine.request import Request
from tokenpool_engine.scheduler import Slice, Step

# Rounding moves logits by some hundredths of their size; positions that are ignored, by three tenths and more.
TOLERANCE: Final = 0.2
LENGTH, CUT, OTHER = 12, 7, 5


class Computer(Protocol):
    """What computes a step."""

    def forward(self, step: Step) -> tuple[Tensor, dict[int, int | None]]:
        """Logits of the slices that sample, and the sliding window of each layer."""


def prove(runner: Computer, config: Any, pages: int) -> None:
    """Raises StartError for a model that cannot be computed, or not rightly, in packed steps."""
    try:
        whole, windows = runner.forward(Step((_slice("whole", LENGTH, 0, LENGTH, 0),)))
        refuse_lost_windows(config, windows)
        # Fewer pages do not hold these prompts side by side.
        chunked = _in_chunks(runner) if pages >= 3 else whole
    except (MemoryError, torch.OutOfMemoryError, StartError):
        raise
    except Exception as error:
        raise StartError(Reason.MODEL_UNSUPPORTED, f"the model cannot be computed: {error}") from error
    difference = distance(whole[0], chunked[-1])
    if not difference < TOLERANCE:
        text = f"a prompt in chunks gives logits that are {difference:.0%} off those of the whole one"
        raise StartError(Reason.MODEL_UNSUPPORTED, text)


def refuse_lost_windows(config: Any, windows: dict[int, int | None]) -> None:
    """Raises StartError when the config has a sliding window that attention was not told; `windows` is by layer."""
    kinds = getattr(config, "layer_types", None) or ()
    lost = any(kind == "sliding_attention" and windows.get(layer) is None for layer, kind in enumerate(kinds))
    if not kinds and getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        lost = not any(windows.values())
    if lost:
        raise StartError(Reason.MODEL_UNSUPPORTED, "the model keeps its sliding window from attention")


def distance(one: Tensor, other: Tensor) -> float:
    """How far two rows of logits are apart, in parts of their spread."""
    return float((one - other).norm() / (one - one.mean()).norm())


def _in_chunks(runner: Computer) -> Tensor:
    ahead = _slice("other", OTHER, 0, OTHER, 1)
    runner.forward(Step((ahead, _slice("cut", LENGTH, 0, CUT, 2))))
    return runner.forward(Step((_slice("cut", LENGTH, CUT, LENGTH, 2),)))[0]


def _slice(name: str, length: int, start: int, stop: int, page: int) -> Slice:
    ids = tuple(range(1, length + 1))
    return Slice(Request(name, ids, max_tokens=1), start, stop, stop == length, (page,))
