"""Tiny random Llama-shaped models, and steps that mix everything a step can hold."""

import random
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from tokenpool_engine.compute import attention
from tokenpool_engine.request import Request
from tokenpool_engine.scheduler import Slice, Step

SIZES: dict[str, Any] = {
    "vocab_size": 200,  # not whole panels
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
CONFIGS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama with tied embeddings": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama with one key-value head": LlamaConfig(**{**SIZES, "num_key_value_heads": 1}),
    "llama without groups": LlamaConfig(**{**SIZES, "num_key_value_heads": 4}),
    "llama with llama3 rope": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama with yarn": LlamaConfig(**SIZES, rope_parameters=YARN),
    "mistral with a sliding window": MistralConfig(**SIZES, sliding_window=45),
    "qwen2 with biases": Qwen2Config(**SIZES),
    "qwen3 with norms of heads": Qwen3Config(**SIZES),
}


def make(config: PretrainedConfig, dtype: torch.dtype = torch.float32) -> Any:
    """A model of that config, all its vectors random too, with paged attention."""
    attention.register()
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention.NAME).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, 0.0 if name.endswith("bias") else 1.0, 0.2)
        elif "lm_head" not in name:
            torch.nn.init.normal_(weight, 0.0, 0.08)
    # What bfloat16 can hold, so that only the arithmetic differs.
    return model.to(torch.bfloat16).to(dtype)


def mixed_steps() -> Iterator[Step]:
    """Whole prompts, chunks, decoding over pages in any order, one token and many in one row."""
    chance = random.Random(5)
    requests = [
        Request(str(n), tuple(chance.randrange(1, 199) for _ in range(size)), 8)
        for n, size in enumerate((100, 33, 64, 7))
    ]
    long, page_and_one, two_pages, short = requests
    yield Step((_part(long, 0, 41, 7, 2, 9, 0), _part(page_and_one, 0, 33, 4, 3)))
    yield Step((_part(short, 0, 7, 1), _part(long, 41, 96, 7, 2, 9, 0), _part(two_pages, 0, 63, 6, 5)))
    yield Step((_part(two_pages, 63, 64, 6, 5), _part(long, 96, 99, 7, 2, 9, 0)))
    yield Step((_part(long, 99, 100, 7, 2, 9, 0),))


def _part(request: Request, start: int, stop: int, *pages: int) -> Slice:
    return Slice(request, start, stop, stop == len(request.prompt), pages)
