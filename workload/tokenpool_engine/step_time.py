"""How long a step takes, as a model: a + b per sequence that decodes + c per prompt token. Pure.

Fitted by recursive least squares over warm steps, older ones counting less. It says what a shard can do at any mix of
work, also one that it has not seen lately.
"""

from dataclasses import dataclass
from typing import Final

# First steps find nothing in caches and no thread awake.
COLD_STEPS: Final = 20
# How much an older step counts beside the next one: the last few hundred decide.
MEMORY: Final = 0.997
# Prompt tokens come in hundreds: the coefficients are fitted in units of similar size.
PROMPT_UNIT: Final = 64.0
DECODE_UNIT: Final = 8.0
# A step that was held up from outside by more than so many times its expected length says nothing of the shard.
OUTLIER: Final = 5.0


@dataclass(frozen=True)
class Coefficients:
    """Seconds: of an empty step, of each sequence that decodes, of each prompt token."""

    base: float
    decode: float
    prompt: float


class StepTime:
    """The fit so far."""

    def __init__(self) -> None:
        self._seen = 0
        self._weights = [0.0, 0.0, 0.0]
        self._spread = [[1e3 if row == column else 0.0 for column in range(3)] for row in range(3)]

    def observe(self, decoding: int, prompt: int, seconds: float) -> None:
        """Take one step into the fit."""
        self._seen += 1
        if self._seen <= COLD_STEPS:
            return
        features = (1.0, decoding / DECODE_UNIT, prompt / PROMPT_UNIT)
        expected = sum(weight * value for weight, value in zip(self._weights, features, strict=True))
        if self._seen > 2 * COLD_STEPS and seconds > OUTLIER * expected > 0:
            return
        reach = [sum(row[at] * features[at] for at in range(3)) for row in self._spread]
        scale = MEMORY + sum(value * part for value, part in zip(features, reach, strict=True))
        gain = [part / scale for part in reach]
        self._weights = [weight + part * (seconds - expected) for weight, part in zip(self._weights, gain, strict=True)]
        # Without new kinds of steps the spread would grow for ever.
        self._spread = [
            [min((self._spread[row][at] - gain[row] * reach[at]) / MEMORY, 1e3) for at in range(3)] for row in range(3)
        ]

    @property
    def coefficients(self) -> Coefficients | None:
        """What the fit says; None before there were warm steps. No part of a step takes less than nothing."""
        if self._seen <= 2 * COLD_STEPS:
            return None
        base, decode, prompt = (max(weight, 0.0) for weight in self._weights)
        return Coefficients(base, decode / DECODE_UNIT, prompt / PROMPT_UNIT)
