"""The shard as server and admin see it: its limits, its parts once there are any, and the stage it is in.

No torch here, so that the admin port answers while torch itself is being loaded.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokenpool_engine.engine import Engine
from tokenpool_engine.failure import StartError
from tokenpool_engine.metrics import Metrics


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, in tokens."""

    model_length: int
    queue_tokens: int


class Ranks(Protocol):
    """The other processes that compute the same steps."""

    def watch(self, lost: Callable[[StartError], None]) -> None:
        """From now on call `lost` once, from some thread, when the shard cannot go on for want of a rank."""

    def close(self) -> None:
        """End them."""


@dataclass(frozen=True)
class Parts:
    """Everything that exists once the model is loaded."""

    engine: Engine
    metrics: Metrics
    tokenizer: Any
    stop_ids: frozenset[int]
    limits: Limits
    vocabulary: int
    ranks: Ranks | None = None


@dataclass
class Shard:
    """The process's state as others see it."""

    served_name: str
    stage: str = "starting"
    draining: bool = False
    parts: Parts | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)
    """How long each stage of the start took, and all of it until the shard was ready."""
    _entered_at: float = field(default_factory=time.monotonic)

    def enter(self, stage: str) -> None:
        """Go on to the next stage of the start. The first began with the process's imports."""
        now = time.monotonic()
        self.stage_seconds[self.stage] = now - self._entered_at
        self.stage, self._entered_at = stage, now

    @property
    def not_ready(self) -> str:
        """Why the shard takes no requests now; empty while it does."""
        if self.draining:
            return "draining"
        if self.parts is None:
            return self.stage
        return self.parts.engine.trouble()
