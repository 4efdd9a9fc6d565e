"""A tiny random Llama with a byte-level tokenizer and a chat template, made once per session."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from models.smollm2 import smollm2_directory

# Two test processes share two cores.
torch.set_num_threads(1)

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and an end-of-sequence token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate([*alphabet, "<eos>"])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
    wrapped.chat_template = TEMPLATE
    return wrapped


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=256,
        bos_token_id=None,
        pad_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2's folder; fetched when it is not in the cache yet, so only for tests with the mark `model`."""
    return smollm2_directory()
