"""Draws one token a row, for all rows of a step at once, without sorting a vocabulary unless a bound needs that."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

# The mass that top_p asks for is nearly always in fewer tokens; rows where it is not are sorted whole.
USUAL_CANDIDATES: Final = 256


class Bounds(NamedTuple):
    """How one row is drawn: what narrows it, and the random number in [0, 1)."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    chance: float

    @property
    def is_free(self) -> bool:
        """Any token may be drawn; min_p alone needs no order either."""
        return not self.top_k and self.top_p >= 1


def draw(scores: Tensor, rows: Sequence[Bounds]) -> list[int]:
    """Token ids; scores are float32 [rows, vocabulary], not yet divided by the temperature."""
    scaled = scores / _column(scores, [row.temperature for row in rows])
    if any(row.min_p for row in rows):
        floor = _column(scores, [math.log(row.min_p) if row.min_p else -math.inf for row in rows])
        scaled = scaled.masked_fill(scaled < scaled.amax(dim=-1, keepdim=True) + floor, -math.inf)
    tokens = [0] * len(rows)
    for is_free, method in ((True, _draw_free), (False, _draw_bounded)):
        chosen = [at for at, row in enumerate(rows) if row.is_free == is_free]
        if chosen:
            part = scaled if len(chosen) == len(rows) else scaled[chosen]
            for at, token in zip(chosen, method(part, [rows[at] for at in chosen]), strict=True):
                tokens[at] = token
    return tokens


def _draw_free(scaled: Tensor, rows: Sequence[Bounds]) -> list[int]:
    """By the cumulated mass in the vocabulary's own order."""
    mass = torch.softmax(scaled, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    found: list[int] = _place(mass, mass[:, -1:], rows).tolist()
    return found


def _draw_bounded(scaled: Tensor, rows: Sequence[Bounds]) -> list[int]:
    """By the cumulated mass of the likeliest tokens, likeliest first."""
    size = scaled.shape[-1]
    # A row without top_k asks for the usual number; a row whose bound is wider needs no more than all.
    wanted = max(min(row.top_k, size) if row.top_k else USUAL_CANDIDATES for row in rows)
    tokens, short = _draw_from(scaled, rows, min(wanted, size))
    if short:
        redone, _ = _draw_from(scaled[short], [rows[at] for at in short], size)
        for at, token in zip(short, redone, strict=True):
            tokens[at] = token
    return tokens


def _draw_from(scaled: Tensor, rows: Sequence[Bounds], count: int) -> tuple[list[int], list[int]]:
    """Draw from the `count` likeliest tokens; the second list are the rows whose top_p needs more of them."""
    values, ids = scaled.topk(count, dim=-1)
    best = values[:, :1]
    mass = (values - best).exp().cumsum(dim=-1, dtype=torch.float64)
    widest = torch.tensor([min(row.top_k or count, count) for row in rows], device=scaled.device)[:, None]
    whole = (scaled.logsumexp(dim=-1, keepdim=True) - best).double().exp()
    has_top_k = torch.tensor([[bool(row.top_k)] for row in rows], device=scaled.device)
    reference = torch.where(has_top_k, mass.gather(1, widest - 1), whole)
    goal = reference * _column(mass, [row.top_p for row in rows])
    # The smallest set whose mass reaches the goal, at least the best token, at most top_k.
    kept = torch.minimum((mass < goal).sum(dim=-1, keepdim=True) + 1, widest)
    short = (~has_top_k & (mass[:, -1:] < goal)).flatten().tolist() if count < scaled.shape[-1] else []
    place = _place(mass, mass.gather(1, kept - 1), rows)
    tokens: list[int] = ids.gather(1, place[:, None])[:, 0].tolist()
    return tokens, [at for at, is_short in enumerate(short) if is_short]


def _place(mass: Tensor, total: Tensor, rows: Sequence[Bounds]) -> Tensor:
    """Where the random number falls: the first place whose cumulated mass is above its share of the total."""
    share = total * _column(mass, [row.chance for row in rows])
    below = torch.nextafter(total, torch.zeros_like(total))
    return torch.searchsorted(mass, torch.minimum(share, below), right=True)[:, 0]


def _column(like: Tensor, numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=like.dtype, device=like.device)[:, None]
