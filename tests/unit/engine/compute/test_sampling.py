"""Picking tokens: greedy, bounded, with log probabilities, and the same wherever and beside whom a request runs."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tokenpool_engine.compute.sampling import pick, uniform
from tokenpool_engine.request import STUCK, Picked, Request, Sampling

LOGITS = torch.tensor([0.1, 2.0, -1.0, 1.9, 0.5])


def request(sampling: Sampling, generated: int = 0, stop_ids: frozenset[int] = frozenset()) -> Request:
    return Request("r", (1, 2, 3), 100, sampling, stop_ids, output=[0] * generated)


def token(logits: Tensor, sampling: Sampling, position: int = 0) -> int:
    return pick(logits[None], [request(sampling, position)])[0].token


def drawn(sampling: Sampling, count: int = 150, logits: Tensor = LOGITS) -> set[int]:
    return {token(logits, sampling, position) for position in range(count)}


def test_temperature_zero_is_greedy() -> None:
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    assert pick(rows, [request(Sampling(0.0)), request(Sampling(0.0))]) == [Picked(1), Picked(3)]
    assert pick(torch.empty(0, 5), []) == []


@pytest.mark.parametrize("temperature", [1e-6, 1e-39, 1e-46, 1e-300])
def test_a_temperature_that_float32_cannot_divide_by_is_greedy(temperature: float) -> None:
    assert token(LOGITS, Sampling(temperature)) == 1


@pytest.mark.parametrize(
    ("bound", "allowed"),
    [
        (Sampling(1.0), {0, 1, 2, 3, 4}),
        (Sampling(1.0, top_k=1), {1}),
        (Sampling(1.0, top_k=2), {1, 3}),
        (Sampling(1.0, top_k=10**30), {0, 1, 2, 3, 4}),
        (Sampling(1.0, top_p=1e-6), {1}),
        (Sampling(1.0, top_p=0.7), {1, 3}),
        (Sampling(1.0, top_k=3, top_p=0.89), {1, 3}),
        # e^0.5 / e^2 is 0.223, e^0.1 / e^2 is 0.150.
        (Sampling(1.0, min_p=0.2), {1, 3, 4}),
        (Sampling(1.0, min_p=0.12), {0, 1, 3, 4}),
        (Sampling(1.0, min_p=1.0), {1}),
        (Sampling(1.0, min_p=0.2, top_p=0.99, top_k=4), {1, 3, 4}),
        (Sampling(1e-4), {1}),
    ],
)
def test_only_what_the_bounds_allow_is_drawn_and_all_of_it(bound: Sampling, allowed: set[int]) -> None:
    assert drawn(bound) == allowed


@pytest.mark.parametrize("bound", [Sampling(1.0, seed=5), Sampling(1.0, seed=5, top_p=0.9999999)])
def test_frequencies_follow_the_probabilities(bound: Sampling) -> None:
    found = [token(LOGITS, bound, position) for position in range(1500)]
    for one, share in enumerate(torch.softmax(LOGITS, dim=-1).tolist()):
        assert found.count(one) / 1500 == pytest.approx(share, abs=0.04)


def reference(logits: Tensor, sampling: Sampling, position: int) -> int:
    """The same draw by the book: a full sort in double precision."""
    scores, ids = torch.sort((logits / sampling.temperature).double(), descending=True, stable=True)
    scores[scores < scores[0] + torch.log(torch.tensor(sampling.min_p or 0.0).double())] = -torch.inf
    if sampling.top_k:
        scores, ids = scores[: sampling.top_k], ids[: sampling.top_k]
    mass = torch.softmax(scores, dim=-1).cumsum(dim=-1)
    kept = min(int((mass < sampling.top_p).sum()) + 1, len(mass))
    goal = uniform(sampling.seed, position + 3) * float(mass[kept - 1])
    return int(ids[int((mass[:kept] <= goal).sum())])


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize(
    "bound", [{"top_p": 0.9}, {"top_k": 40}, {"top_k": 500, "top_p": 0.5}, {"top_p": 0.8, "min_p": 0.05}]
)
def test_bounded_draws_are_those_of_a_full_sort_also_where_the_mass_is_spread(
    spread: float, bound: dict[str, Any]
) -> None:
    logits = torch.randn(2000, generator=torch.Generator().manual_seed(3)) * spread
    sampling = Sampling(0.8, seed=9, **bound)
    assert [token(logits, sampling, n) for n in range(25)] == [reference(logits, sampling, n) for n in range(25)]


MIXED = [
    Sampling(0.0),
    Sampling(1.0, seed=1),
    Sampling(0.7, seed=2, top_p=0.9),
    Sampling(1.3, seed=3, top_k=700),
    Sampling(1.0, seed=4, min_p=0.01),
    Sampling(0.0, repetition_penalty=1.5, presence_penalty=1.0),
    Sampling(1.0, seed=5, top_k=5, frequency_penalty=0.5),
    Sampling(0.0, logit_bias=((7, 50.0),), logprobs=2),
]


def test_a_token_does_not_depend_on_who_shares_the_step() -> None:
    rows = torch.randn(len(MIXED), 3000, generator=torch.Generator().manual_seed(1))
    requests = [request(sampling, 4) for sampling in MIXED]
    alone = [pick(rows[at : at + 1], [one])[0] for at, one in enumerate(requests)]
    assert pick(rows, requests) == alone
    order = random.Random(2).sample(range(len(MIXED)), len(MIXED))
    assert pick(rows[order], [requests[at] for at in order]) == [alone[at] for at in order]


def test_a_seeded_request_continued_elsewhere_gives_the_same_tokens() -> None:
    sampling = Sampling(1.0, seed=11)
    whole = [token(LOGITS, sampling, generated) for generated in range(20)]
    assert whole[10:] == [token(LOGITS, sampling, generated) for generated in range(10, 20)]
    assert whole != [token(LOGITS, Sampling(1.0, seed=12), n) for n in range(20)]


@pytest.mark.parametrize(
    ("sampling", "prompt", "output", "wanted"),
    [
        # Scores 0.1, 2.0, -1.0, 1.9, 0.5: the runner-up wins as soon as the best loses more than 0.1.
        (Sampling(0.0, presence_penalty=0.2), (1,), [], 1),
        (Sampling(0.0, presence_penalty=0.2), (0,), [1], 3),
        (Sampling(0.0, presence_penalty=0.2), (0,), [1, 1, 3], 1),
        (Sampling(0.0, frequency_penalty=0.2), (0,), [1, 1, 3], 3),
        (Sampling(0.0, frequency_penalty=-2.0), (0,), [4], 4),
        (Sampling(0.0, repetition_penalty=1.2), (1,), [], 3),
        (Sampling(0.0, repetition_penalty=1.2), (1,), [3], 1),
        (Sampling(0.0, repetition_penalty=0.5), (3,), [], 3),
        (Sampling(0.0, logit_bias=((2, 3.5),)), (0,), [], 2),
        (Sampling(0.0, logit_bias=((1, -100.0), (3, -100.0))), (0,), [], 4),
        (Sampling(0.0, logit_bias=((99, 100.0),)), (0,), [], 1),
    ],
)
def test_penalties_and_bias(sampling: Sampling, prompt: tuple[int, ...], output: list[int], wanted: int) -> None:
    before = LOGITS.clone()
    assert pick(LOGITS[None], [Request("r", prompt, 9, sampling, output=output)]) == [Picked(wanted)]
    assert torch.equal(LOGITS, before)


def test_a_repetition_penalty_makes_negative_scores_more_negative() -> None:
    below = torch.tensor([-1.0, -1.1])
    assert pick(below[None], [Request("r", (0,), 9, Sampling(0.0, repetition_penalty=1.2))]) == [Picked(1)]


@pytest.mark.parametrize(("generated", "wanted"), [(0, 3), (1, 3), (2, 1), (5, 1)])
def test_stop_ids_wait_for_min_tokens(generated: int, wanted: int) -> None:
    one = request(Sampling(0.0, min_tokens=2), generated, frozenset({1, 99}))
    assert pick(LOGITS[None], [one]) == [Picked(wanted)]


def test_logprobs_are_those_of_the_model_before_any_parameter() -> None:
    bent = Sampling(0.5, top_k=1, logit_bias=((2, 90.0),), logprobs=3)
    [picked] = pick(LOGITS[None], [request(bent)])
    wanted = torch.log_softmax(LOGITS, dim=-1).tolist()
    assert (picked.token, picked.logprob) == (2, pytest.approx(wanted[2]))
    assert [one for one, _ in picked.top] == [1, 3, 4]
    assert [chance for _, chance in picked.top] == pytest.approx([wanted[1], wanted[3], wanted[4]])


def test_logprobs_come_only_to_who_asked() -> None:
    rows = LOGITS.repeat(3, 1)
    some = [request(Sampling(0.0)), request(Sampling(0.0, logprobs=0)), request(Sampling(0.0, logprobs=10))]
    plain, own, all_of_them = pick(rows, some)
    assert plain == Picked(1)
    assert (own.top, own.logprob) == ((), pytest.approx(float(torch.log_softmax(LOGITS, -1)[1])))
    assert [one for one, _ in all_of_them.top] == [1, 3, 4, 0, 2]


class Only:
    """A guide that allows some tokens; none at all: nothing may follow."""

    def __init__(self, *ids: int) -> None:
        self._mask = sum(1 << one for one in ids).to_bytes(1, "little") if ids else None

    def allowed(self, output: Sequence[int]) -> bytes | None:
        return self._mask


def test_a_guide_bounds_what_is_picked_and_costs_nobody_else() -> None:
    rows = LOGITS.repeat(4, 1)
    guides = [Only(0, 2), None, Only(), Only(7)]
    found = pick(rows, [request(Sampling(0.0, guide=guide)) for guide in guides])
    assert found == [Picked(0), Picked(1), STUCK, STUCK]
    assert drawn(Sampling(1.0, guide=Only(2, 4))) == {2, 4}
    assert drawn(Sampling(1.0, guide=Only(2, 4), top_p=0.999)) == {2, 4}


@pytest.mark.parametrize(
    ("sampling", "plain"),
    [
        (Sampling(0.0), True),
        (Sampling(0.0, top_p=0.5, top_k=3, seed=4), True),
        (Sampling(1.0), False),
        (Sampling(0.0, presence_penalty=0.1), False),
        (Sampling(0.0, frequency_penalty=-0.1), False),
        (Sampling(0.0, repetition_penalty=1.1), False),
        (Sampling(0.0, logit_bias=((1, 1.0),)), False),
        (Sampling(0.0, logprobs=0), False),
        (Sampling(0.0, min_tokens=1), False),
        (Sampling(0.0, guide=Only(1)), False),
    ],
)
def test_plain_is_what_the_best_logit_alone_decides(sampling: Sampling, plain: bool) -> None:
    assert sampling.is_plain == plain


def test_random_numbers_are_in_range_and_spread() -> None:
    numbers = [uniform(3, position) for position in range(1000)]
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
