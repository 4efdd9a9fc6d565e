"""The lean loop computes what the model's own forward computes, for every kind of Llama-shaped model."""

import pytest
import torch
from transformers import LlamaConfig, PretrainedConfig

from support.llamas import CONFIGS, SIZES, make, mixed_steps
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import NotLlama, read
from tokenpool_engine.compute.rows import lay_out
from tokenpool_engine.compute.stock import Stock


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 0.05)])
def test_logits_are_those_of_the_stock_forward(config: PretrainedConfig, dtype: torch.dtype, tolerance: float) -> None:
    model = make(config, dtype)
    stock = Stock(model, 10, 32)
    wanted = [stock.logits(lay_out(step, 32)) for step in mixed_steps()]
    lean = Lean(read(model, stock.windows, 512), 10, 32)
    for step, logits in zip(mixed_steps(), wanted, strict=True):
        found = lean.logits(lay_out(step, 32))
        assert found.shape == logits.shape
        torch.testing.assert_close(found, logits, rtol=0, atol=tolerance * float(logits.std()) * 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"mlp_bias": True}, "a bias in the MLP"),
        ({"attention_bias": True}, "a bias behind attention"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "of kind 'dynamic'"),
    ],
)
def test_what_a_llama_can_be_told_and_the_loop_does_not_do(change: dict[str, object], words: str) -> None:
    model = make(LlamaConfig(**{**SIZES, **change}))
    with pytest.raises(NotLlama, match=words):
        read(model, {}, 64)
