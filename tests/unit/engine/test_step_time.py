"""The fitted cost of a step is the true one, whatever came first and whatever held single steps up."""

import random

import pytest

from tokenpool_engine.step_time import COLD_STEPS, StepTime


def observe(model: StepTime, steps: int, cost: tuple[float, float, float], hiccups: bool = False) -> None:
    chance = random.Random(4)
    base, decode, prompt = cost
    for number in range(steps):
        decoding, tokens = chance.randrange(0, 33), chance.choice([0, 0, 0, 64, 300, 480])
        seconds = (base + decode * decoding + prompt * tokens) * chance.uniform(0.95, 1.05)
        model.observe(decoding, tokens, seconds * 50 if hiccups and number % 40 == 39 else seconds)


@pytest.mark.parametrize("hiccups", [False, True])
def test_the_cost_is_found(hiccups: bool) -> None:
    model = StepTime()
    for _ in range(COLD_STEPS):
        model.observe(1, 0, 5.0)  # nothing is warm yet
    observe(model, 600, (0.01, 0.001, 0.0004), hiccups)
    found = model.coefficients
    assert found
    assert (found.base, found.decode, found.prompt) == pytest.approx((0.01, 0.001, 0.0004), rel=0.15)


def test_it_follows_when_the_cost_changes() -> None:
    model = StepTime()
    observe(model, 600, (0.01, 0.001, 0.0004))
    observe(model, 1500, (0.02, 0.002, 0.0008))
    assert model.coefficients
    assert model.coefficients.prompt == pytest.approx(0.0008, rel=0.15)


def test_nothing_is_said_before_there_are_warm_steps() -> None:
    model = StepTime()
    observe(model, 2 * COLD_STEPS, (0.01, 0.001, 0.0004))
    assert model.coefficients is None


def test_one_kind_of_step_for_long_does_not_break_it() -> None:
    model = StepTime()
    for _ in range(20_000):
        model.observe(8, 0, 0.02)
    observe(model, 600, (0.01, 0.001, 0.0004))
    assert model.coefficients
    assert model.coefficients.prompt == pytest.approx(0.0004, rel=0.15)
