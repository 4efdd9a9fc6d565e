"""Picking tokens: greedy, bounded, and the same wherever a seeded request runs."""

import pytest
import torch

from tokenpool_engine.compute.sampling import draw, pick, uniform
from tokenpool_engine.request import Request, Sampling

LOGITS = torch.tensor([0.1, 2.0, -1.0, 1.9, 0.5])


def request(sampling: Sampling, generated: int = 0) -> Request:
    return Request("r", (1, 2, 3), 100, sampling, output=[0] * generated)


def test_temperature_zero_is_greedy() -> None:
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    assert pick(rows, [request(Sampling(0.0)), request(Sampling(0.0))]) == [1, 3]
    assert pick(torch.empty(0, 5), []) == []


@pytest.mark.parametrize("temperature", [1e-6, 1e-39, 1e-46, 1e-300])
def test_a_temperature_that_float32_cannot_divide_by_is_greedy(temperature: float) -> None:
    assert pick(LOGITS[None], [request(Sampling(temperature))]) == [1]


def test_bounds_larger_than_the_vocabulary_are_none() -> None:
    wide, free = Sampling(1.0, top_k=10**30, seed=4), Sampling(1.0, seed=4)
    assert [draw(LOGITS, wide, n) for n in range(50)] == [draw(LOGITS, free, n) for n in range(50)]


@pytest.mark.parametrize("bound", [Sampling(1.0, top_k=1), Sampling(1.0, top_p=1e-6), Sampling(1e-4)])
def test_tight_bounds_leave_only_the_best(bound: Sampling) -> None:
    assert {draw(LOGITS, bound, position) for position in range(200)} == {1}


@pytest.mark.parametrize(
    ("bound", "allowed"),
    [(Sampling(1.0, top_k=2), {1, 3}), (Sampling(1.0, top_p=0.7), {1, 3}), (Sampling(1.0), set(range(5)))],
)
def test_only_what_the_bounds_allow_is_drawn(bound: Sampling, allowed: set[int]) -> None:
    assert {draw(LOGITS, bound, position) for position in range(500)} == allowed


def test_frequencies_follow_the_probabilities() -> None:
    drawn = [draw(LOGITS, Sampling(1.0, seed=5), position) for position in range(4000)]
    wanted = torch.softmax(LOGITS, dim=-1)
    for token, share in enumerate(wanted.tolist()):
        assert drawn.count(token) / 4000 == pytest.approx(share, abs=0.03)


def test_a_seeded_request_continued_elsewhere_gives_the_same_tokens() -> None:
    sampling = Sampling(1.0, seed=11)
    whole = [pick(LOGITS[None], [request(sampling, generated)])[0] for generated in range(20)]
    later = [pick(LOGITS[None], [request(sampling, generated)])[0] for generated in range(10, 20)]
    assert whole[10:] == later
    assert whole != [pick(LOGITS[None], [request(Sampling(1.0, seed=12), n)])[0] for n in range(20)]


def test_random_numbers_are_in_range_and_spread() -> None:
    numbers = [uniform(3, position) for position in range(1000)]
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
