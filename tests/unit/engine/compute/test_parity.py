"""Greedy float32 answers are those of `generate`, token for token, however requests meet: every family, every play."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from support import parity
from tokenpool_engine.compute import attention, llama, selfcheck
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.loader import Loaded, refuse_unsupported
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.failure import StartError

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
