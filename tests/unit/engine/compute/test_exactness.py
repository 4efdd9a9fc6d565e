"""How steps come about: counts of steps, seeds, and what else a model with our attention does.

That answers are those of `generate`, for every family, is in test_parity.py.
"""

import copy
from collections.abc import Sequence

import pytest
import torch

from support import parity
from support.llamas import CONFIGS, make
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.request import Picked, Request, Sampling
from tokenpool_engine.scheduler import Step

MODELS = ["llama", "mistral with a sliding window"]


class Counting:
    """A runner that counts its steps."""

    def __init__(self, name: str) -> None:
        self.model = make(CONFIGS[name])
        self._runner = Runner(Stock(self.model, 64, parity.PAGE_TOKENS))
        self.steps = 0

    def run(self, step: Step) -> dict[str, Picked]:
        self.steps += 1
        return self._runner.run(step)


def play(runner: Counting, requests: Sequence[Request], budget: int) -> None:
    parity.drive(runner, [requests], budget, pages=64)


@pytest.fixture(scope="module", params=MODELS)
def runner(request: pytest.FixtureRequest) -> Counting:
    return Counting(request.param)


def test_a_chunk_of_a_lone_prompt_samples_nothing(runner: Counting) -> None:
    one = Request("one", parity.PROMPTS["of 60"], 24, Sampling(0.0))
    before = runner.steps
    play(runner, [one], budget=16)
    # The prompt of 60 tokens takes four steps, the last of which gives the first token.
    assert runner.steps - before == 4 + 23
    assert one.output == parity.generate(reference_of(runner), one.prompt, 24)


def reference_of(runner: Counting) -> torch.nn.Module:
    """The same weights with transformers' own attention."""
    # A model keeps and changes the config that it is made from.
    config = copy.deepcopy(runner.model.config)
    twin = type(runner.model)._from_config(config, attn_implementation="eager").eval()
    twin.load_state_dict(runner.model.state_dict())
    return twin  # type: ignore[no-any-return]


def test_a_seeded_answer_continued_elsewhere_goes_on_the_same(runner: Counting) -> None:
    seeded = Sampling(1.0, seed=5)
    whole = Request("whole", parity.PROMPTS["of 37"], 20, seeded)
    play(runner, [whole], budget=64)
    rest = Request("rest", (*whole.prompt, *whole.output[:12]), 8, seeded)
    mates = [Request(name, parity.PROMPTS[name], 24, Sampling(0.0)) for name in parity.RAGGED]
    play(runner, [rest, *mates], budget=20)
    assert rest.output == whole.output[12:]


def test_an_ordinary_forward_of_the_same_model_is_refused_not_wrong(runner: Counting) -> None:
    with pytest.raises(ValueError, match="needs a paged_step"):
        runner.model(torch.tensor([[1, 2]]))
