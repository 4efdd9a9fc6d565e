"""The step's integers on their way to the device: one copy a step, from pinned memory, on a stream of its own.

Two lanes are taken in turn, so that a step's integers can travel while the step before still computes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST = 4096


class Staging:
    """Sends int64 vectors. On a CPU there is no way to go, and they are given back as they are."""

    def __init__(self, device: torch.device) -> None:
        self._lanes = [Lane(device), Lane(device)] if device.type == "cuda" else []

    def send(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The vectors on the device, ready for what is launched next on the present stream.

        They stay what they are until the second call after this one.
        """
        if not self._lanes:
            return list(parts)
        last, lane = self._lanes
        self._lanes = [lane, last]
        # Everything that reads the last lane has been launched by now.
        last.used.record()
        return list(torch.split(lane.send(parts), [len(part) for part in parts]))


class Lane:
    """A place in pinned memory, and its twin on a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.used = torch.cuda.Event()  # type: ignore[no-untyped-call]
        """Recorded behind the last reader of the twin."""
        self._make(SMALLEST)

    def send(self, parts: Sequence[Tensor]) -> Tensor:
        """All parts, one behind the other."""
        size = sum(len(part) for part in parts)
        # The copy before this one has left the pinned memory before it is written again.
        self._copied.synchronize()
        if size > len(self._pinned):
            self._make(2 * size)
        torch.cat(list(parts), out=self._pinned[:size])
        self._stream.wait_event(self.used)
        with torch.cuda.stream(self._stream):
            self._twin[:size].copy_(self._pinned[:size], non_blocking=True)
            self._copied.record()
        torch.cuda.current_stream(self._device).wait_event(self._copied)
        return self._twin[:size]

    def _make(self, size: int) -> None:
        self._pinned = torch.empty(size, dtype=torch.long, pin_memory=True)
        self._twin = torch.empty(size, dtype=torch.long, device=self._device)
        # The allocator may have given memory that the present stream still uses; it keeps order within one stream only.
        self.used.record(torch.cuda.current_stream(self._device))
