"""What the model itself says: greedy fp32 `generate` of transformers, the oracle for every answer of a pool."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@cache
def load(directory: Path) -> tuple[Any, Any]:
    """(tokenizer, model) in float32; loaded once per process."""
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True).eval()
    return tokenizer, model


def generate(directory: Path, prompt: str, max_tokens: int) -> str:
    """The text that greedy decoding gives for one user message, without special tokens."""
    tokenizer, model = load(directory)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)
    text: str = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return text
