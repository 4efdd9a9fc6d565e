"""`reference_model.py DIRECTORY`: write the 58 M reference model, a Llama with random weights that are always the same.

Its tokenizer has one word for each token ("w17" is token 17), so any token can be shown and any prompt counted.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<unk>", "<s>", "</s>")
CONFIGURATION = {
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_model(directory: Path) -> None:
    """Weights as bf16 safetensors, with their configuration."""
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**CONFIGURATION)).to(torch.bfloat16).save_pretrained(directory)


def write_tokenizer(directory: Path) -> None:
    """One word a token, apart by spaces."""
    size = int(CONFIGURATION["vocab_size"])
    vocabulary = {name: token for token, name in enumerate(SPECIAL)}
    vocabulary |= {f"w{token}": token for token in range(len(SPECIAL), size)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SPECIAL[0]))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    unknown, begin, end = SPECIAL
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=unknown, pad_token=unknown, bos_token=begin, eos_token=end
    )
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    fast.save_pretrained(directory)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
    write_tokenizer(Path(sys.argv[1]))
