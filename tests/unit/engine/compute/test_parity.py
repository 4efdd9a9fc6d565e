"""Greedy float32 answers are those of `generate`, token for token, however requests meet: every family, every play."""

import copy
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from support import parity
from tokenpool_engine.compute import attention, llama, selfcheck
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.loader import Loaded, load, refuse_unsupported
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.failure import StartError
from tokenpool_engine.request import Request, Sampling

PAGES = max(play.pages for play in parity.PLAYS.values())


def paged(model: parity.Model) -> Loaded:
    """The same weights with our attention."""
    attention.register()
    config = copy.deepcopy(model.config)
    twin = AutoModelForCausalLM.from_config(config, attn_implementation=attention.NAME).float().eval()
    twin.load_state_dict(model.reference.state_dict())
    return Loaded(twin, None, frozenset(), parity.MAX_LENGTH, torch.device("cpu"))


@pytest.mark.parametrize("name", parity.CONFIGS)
def test_answers_are_those_of_generate(name: str) -> None:
    model = parity.model(name)
    assert parity.tells(model.wanted.values())
    runner = Runner(Stock(paged(model).model, PAGES, parity.PAGE_TOKENS))
    said = {title: parity.play(runner, play) for title, play in parity.PLAYS.items()}
    assert said == {title: parity.wanted(model, play) for title, play in parity.PLAYS.items()}


LLAMAS = [name for name in parity.CONFIGS if parity.CONFIGS[name].model_type in llama.MODEL_TYPES]


@pytest.mark.parametrize("name", [name for name in LLAMAS if name != "llama, rope dynamic"])
def test_answers_of_the_lean_loop_are_those_of_generate(name: str) -> None:
    model, loaded = parity.model(name), paged(parity.model(name))
    proof = selfcheck.prove(Stock(loaded.model, selfcheck.PAGES, 32), loaded.model.config)
    runner = Runner(Lean(llama.read(loaded.model, proof.windows, parity.MAX_LENGTH), PAGES, parity.PAGE_TOKENS))
    said = {title: parity.play(runner, play) for title, play in parity.PLAYS.items()}
    assert said == {title: parity.wanted(model, play) for title, play in parity.PLAYS.items()}


def test_softcapped_attention_is_refused() -> None:
    with pytest.raises(StartError, match=r"^ModelUnsupported: attention with softcapped logits is not supported$"):
        refuse_unsupported(Gemma2Config(**parity.GROUPED))


@pytest.mark.model
@pytest.mark.parametrize("budget", [512, 7], ids=["whole prompts", "chunks"])
def test_real_weights(budget: int) -> None:
    folder = os.environ.get("TOKENPOOL_TEST_MODEL")
    if not folder:
        pytest.skip("TOKENPOOL_TEST_MODEL names no folder with real weights; the e2e stories compare with them too")
    loaded = load(Path(folder), "float32")
    runner = Runner(Stock(loaded.model, 128, parity.PAGE_TOKENS))
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = ["The capital of France is", "Once upon a time there was a fox that", "1, 2, 3,", "def fibonacci(n):\n"]
    alone, *mates = [Request(text, tuple(loaded.tokenizer(text)["input_ids"]), 32, Sampling(0.0)) for text in texts]
    parity.drive(runner, [[alone], mates], budget, pages=128)
    said = {request.id: request.output for request in (alone, *mates)}
    assert said == {request.id: parity.generate(reference, request.prompt, 32) for request in (alone, *mates)}
