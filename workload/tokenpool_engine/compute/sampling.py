"""Picks the next token. A function of logits, parameters, seed and position: nothing is remembered between calls.

Random numbers are positional: the same request continued elsewhere gives the same tokens.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from tokenpool_engine.request import COLDEST, Request, Sampling


def pick(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """The next token of each request; logits are float32 [requests, vocabulary]."""
    if not requests:
        return []
    greedy: list[int] = logits.argmax(dim=-1).tolist()
    return [
        best if request.sampling.temperature < COLDEST else draw(row, request.sampling, request.known)
        for row, best, request in zip(logits, greedy, requests, strict=True)
    ]


def draw(row: Tensor, sampling: Sampling, position: int) -> int:
    """Draw from one row of logits with the random number of that position."""
    scores, ids = torch.sort(row / sampling.temperature, descending=True, stable=True)
    if sampling.top_k:
        scores, ids = scores[: sampling.top_k], ids[: sampling.top_k]
    mass = torch.softmax(scores, dim=-1).cumsum(dim=-1)
    # The smallest set whose mass reaches top_p; at least the best token.
    kept = int((mass < sampling.top_p).sum()) + 1
    total = float(mass[min(kept, len(mass)) - 1])
    index = int((mass < uniform(sampling.seed, position) * total).sum())
    return int(ids[min(index, len(ids) - 1)])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on seed and position only."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
