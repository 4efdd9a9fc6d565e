"""Picks the next token. A function of logits, parameters, seed and position: nothing is remembered between calls.

Random numbers are positional: the same request continued elsewhere gives the same tokens. A row's token does not
depend on the other rows.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from tokenpool_engine.compute.draw import Bounds, draw
from tokenpool_engine.compute.scores import adjust
from tokenpool_engine.request import STUCK, Picked, Request


def pick(logits: Tensor, requests: Sequence[Request]) -> list[Picked]:
    """The next token of each request; logits are float32 [requests, vocabulary] and stay as they are."""
    if not requests:
        return []
    scores, stuck = adjust(logits, requests)
    drawn = [row for row, request in enumerate(requests) if not request.sampling.is_greedy and row not in stuck]
    tokens: list[int] = [0] * len(requests) if len(drawn) == len(requests) else scores.argmax(dim=-1).tolist()
    if drawn:
        whole = len(drawn) == len(requests)
        found = draw(scores if whole else scores[drawn], [bounds(requests[row]) for row in drawn])
        for row, token in zip(drawn, found, strict=True):
            tokens[row] = token
    picked = with_logprobs(logits, requests, tokens)
    return [STUCK if row in stuck else found for row, found in enumerate(picked)] if stuck else picked


def bounds(request: Request) -> Bounds:
    """What narrows the request's draw at its present position."""
    sampling = request.sampling
    chance = uniform(sampling.seed, request.known)
    return Bounds(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, chance)


def with_logprobs(logits: Tensor, requests: Sequence[Request], tokens: Sequence[int]) -> list[Picked]:
    """The tokens with what was asked for about them, by the model's own distribution: before any parameter."""
    picked = [Picked(token) for token in tokens]
    rows = [row for row, request in enumerate(requests) if request.sampling.logprobs is not None]
    if not rows:
        return picked
    chances = torch.log_softmax(logits[rows], dim=-1)
    most = max(requests[row].sampling.logprobs or 0 for row in rows)
    own = chances.gather(1, torch.tensor([[tokens[row]] for row in rows], device=chances.device))[:, 0].tolist()
    values, ids = (found.tolist() for found in chances.topk(min(most, chances.shape[1]), dim=-1))
    for at, row in enumerate(rows):
        wanted = requests[row].sampling.logprobs or 0
        top = tuple(zip(ids[at][:wanted], values[at][:wanted], strict=True))
        picked[row] = Picked(tokens[row], own[at], top)
    return picked


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on seed and position only."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
