"""From the model's logits to what a request picks from: grammar, penalties, bias, and stop ids that come too early."""

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from tokenpool_engine.request import Request

NEVER = float("-inf")


def adjust(logits: Tensor, requests: Sequence[Request]) -> tuple[Tensor, frozenset[int]]:
    """The scores, and the rows for which no token is left. Copies the logits only where something changes them."""
    if not any(request.sampling.changes_scores for request in requests):
        return logits, frozenset()
    scores, stuck = logits.clone(), set()
    for row, request in enumerate(requests):
        if request.sampling.changes_scores and not _adjust_row(scores[row], request):
            stuck.add(row)
    return scores, frozenset(stuck)


def _adjust_row(row: Tensor, request: Request) -> bool:
    """Change one row in place; False when no token is left."""
    sampling = request.sampling
    if sampling.has_penalties:
        _penalize(row, request)
    if sampling.logit_bias:
        biases = {token: bias for token, bias in sampling.logit_bias if token < len(row)}
        row[_ids(row, biases)] += torch.tensor(list(biases.values()), dtype=row.dtype, device=row.device)
    if request.stop_ids and len(request.output) < sampling.min_tokens:
        row[_ids(row, request.stop_ids)] = NEVER
    if sampling.guide is None:
        return True
    mask = sampling.guide.allowed(request.output)
    if mask is None:
        return False
    row.masked_fill_(~unpack(mask, len(row)).to(row.device), NEVER)
    return bool(row.max() > NEVER)


def _penalize(row: Tensor, request: Request) -> None:
    """The repetition penalty for tokens of prompt and output, then frequency and presence for those of the output."""
    sampling, counts = request.sampling, Counter(request.output)
    if sampling.repetition_penalty != 1:
        seen = _ids(row, request.prompt_ids.union(counts))
        found = row[seen]
        penalty = sampling.repetition_penalty
        row[seen] = torch.where(found > 0, found / penalty, found * penalty)
    if counts and (sampling.frequency_penalty or sampling.presence_penalty):
        often = torch.tensor(list(counts.values()), dtype=row.dtype, device=row.device)
        row[_ids(row, counts)] -= often * sampling.frequency_penalty + sampling.presence_penalty


def unpack(mask: bytes, size: int) -> Tensor:
    """Bits, lowest first, as booleans of that many tokens; tokens beyond the mask are not allowed."""
    packed = torch.frombuffer(bytearray(mask), dtype=torch.uint8)
    bits = (packed[:, None] >> torch.arange(8, dtype=torch.uint8)).bitwise_and_(1).bool().flatten()[:size]
    return torch.nn.functional.pad(bits, (0, size - len(bits)))


def _ids(row: Tensor, ids: Iterable[int]) -> Tensor:
    """Token ids of one row that the model knows, as an index."""
    return torch.tensor([token for token in ids if token < len(row)], dtype=torch.long, device=row.device)
