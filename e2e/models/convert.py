"""`convert.py GGUF DIRECTORY`: write a quantized GGUF as bf16 safetensors with tokenizer and chat template."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(gguf: Path, directory: Path) -> None:
    """transformers reads GGUF but refuses to save what it read as quantized: a fresh model takes the weights over."""
    source, file = str(gguf.parent), gguf.name
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.bfloat16)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.bfloat16
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    fresh.load_state_dict(read.state_dict(), strict=True)
    fresh.generation_config = read.generation_config
    fresh.save_pretrained(directory, safe_serialization=True)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
