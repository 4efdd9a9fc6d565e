"""How steps come about changes no answer: counts of steps, seeds, and what else a model with our attention does.

That answers are those of `generate`, for every family, is in test_parity.py."""

import copy
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
)

from tokenpool_engine.cache import Ledger
from tokenpool_engine.compute import attention
from tokenpool_engine.compute.loader import Loaded
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.request import Request, Sampling
from tokenpool_engine.scheduler import Scheduler

COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
CONFIGS = {
    "llama": LlamaConfig(**COMMON),
    "mistral with a sliding window": MistralConfig(**COMMON, sliding_window=12),
}


def generate(model: Any, prompt: tuple[int, ...], tokens: int) -> list[int]:
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    found: list[int] = output[0, len(prompt) :].tolist()
    return found


def run(loaded: Loaded, requests: list[Request], budget: int, sequences: int = 8) -> int:
    """Run to the end; the number of steps."""
    ledger = Ledger(64, 8)
    scheduler, runner = Scheduler(ledger, budget, sequences), Runner(Stock(loaded.model, ledger.pages, 8))
    for request in requests:
        scheduler.submit(request)
    steps = 0
    while not scheduler.is_idle:
        step = scheduler.plan()
        scheduler.commit(step, runner.run(step))
        steps += 1
    ledger.check()
    return steps


@dataclass(frozen=True)
class Pair:
    """The same random weights twice: what the model itself says to the prompts, and the model with our attention."""

    wanted: list[list[int]]
    loaded: Loaded


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=list(CONFIGS))
def pair(request: pytest.FixtureRequest) -> Pair:
    # A model keeps and changes the config that it is made from, so each gets its own.
    config: PretrainedConfig = request.param
    torch.manual_seed(1)
    reference = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager").float().eval()
    attention.register()
    paged = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation=attention.NAME).float().eval()
    paged.load_state_dict(reference.state_dict())
    wanted = [generate(reference, prompt, 24) for prompt in prompts(6)]
    return Pair(wanted, Loaded(paged, None, frozenset(), 256, torch.device("cpu")))


def prompts(count: int) -> list[tuple[int, ...]]:
    chance = random.Random(3)
    return [tuple(chance.randrange(1, 127) for _ in range(length)) for length in (1, 37, 5, 60, 16, 9)[:count]]


def requests(count: int, tokens: int = 24) -> list[Request]:
    return [Request(str(n), prompt, tokens, Sampling(0.0)) for n, prompt in enumerate(prompts(count))]


def test_a_chunk_of_a_lone_prompt_samples_nothing(pair: Pair) -> None:
    one = requests(6)[3]
    # The prompt of 60 tokens takes four steps, the last of which gives the first token.
    assert run(pair.loaded, [one], budget=16) == 4 + 23
    assert one.output == pair.wanted[3]


def test_a_seeded_answer_continued_elsewhere_goes_on_the_same(pair: Pair) -> None:
    seeded = Sampling(1.0, seed=5)
    whole = Request("whole", prompts(2)[1], 20, seeded)
    run(pair.loaded, [whole], budget=64)
    rest = Request("rest", (*whole.prompt, *whole.output[:12]), 8, seeded)
    run(pair.loaded, [rest, *requests(6)], budget=20)
    assert rest.output == whole.output[12:]


def test_an_ordinary_forward_of_the_same_model_is_refused_not_wrong(pair: Pair) -> None:
    with pytest.raises(ValueError, match="needs a paged_step"):
        pair.loaded.model(torch.tensor([[1, 2]]))
