"""A model that packed steps would compute wrongly does not become ready; one that they compute rightly does."""

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BloomConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    PhimoeConfig,
    PretrainedConfig,
)

from tokenpool_engine.compute import attention
from tokenpool_engine.compute.selfcheck import PAGES, prove
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.failure import StartError

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def check(config: PretrainedConfig) -> None:
    attention.register()
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention.NAME).float().eval()
    prove(Stock(model, PAGES, 32), model.config)


@pytest.mark.parametrize(
    "config", [LlamaConfig(**SIZES), MistralConfig(**SIZES, sliding_window=12)], ids=["llama", "mistral"]
)
def test_what_is_computed_rightly_passes(config: PretrainedConfig) -> None:
    check(config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            BartConfig(
                vocab_size=128,
                d_model=32,
                encoder_layers=2,
                encoder_attention_heads=4,
                decoder_layers=2,
                decoder_attention_heads=4,
                decoder_ffn_dim=48,
            ),
            "a prompt in chunks gives logits",
        ),
        (PhimoeConfig(**SIZES, num_local_experts=4, sliding_window=12), "keeps its sliding window from attention"),
        (GptOssConfig(**SIZES, head_dim=8, num_local_experts=4), "attention with s_aux is not supported"),
        (BloomConfig(vocab_size=128, hidden_size=32, n_layer=2, n_head=4), "0 of 2 layers use the paged cache"),
    ],
    ids=["positions ignored", "window by mask only", "sinks", "attention of its own"],
)
def test_what_would_be_wrong_is_refused(config: PretrainedConfig, words: str) -> None:
    with pytest.raises(StartError, match=f"^ModelUnsupported: .*{words}"):
        check(config)
