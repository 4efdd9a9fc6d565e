"""From a folder to a model: what is refused before any of it is loaded, and how big the KV cache may be."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.distributed import DistributedConfig

from tokenpool_engine.compute import attention
from tokenpool_engine.compute.native import cpu_flags
from tokenpool_engine.failure import Reason, StartError

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Attention of other kinds (chunked, linear, recurrent state) is not in the paged cache.
KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})


@dataclass(frozen=True)
class Loaded:
    """A model ready to run. `max_length` is what its positions allow, in tokens."""

    model: Any
    tokenizer: Any
    stop_ids: frozenset[int]
    max_length: int
    device: torch.device


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a folder that may be loaded. Raises StartError."""
    path = folder / "config.json"
    if not path.is_file():
        raise StartError(Reason.MODEL_NOT_FOUND, f"{folder} has no config.json; check spec.model.source")
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise StartError(Reason.MODEL_INVALID, f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise StartError(Reason.MODEL_INVALID, f"{path} is not a JSON object")
    for name in ("config.json", "tokenizer_config.json"):
        if (folder / name).is_file() and b'"auto_map"' in (folder / name).read_bytes():
            raise StartError(Reason.MODEL_UNSUPPORTED, f"{name} asks for remote code (auto_map), which is never run")
    if not list(folder.glob("*.safetensors")):
        pickled = [path.name for pattern in PICKLED for path in folder.glob(pattern)]
        found = f"only {pickled[0]}, and pickles are never loaded" if pickled else "none"
        raise StartError(Reason.MODEL_INVALID, f"{folder} must hold *.safetensors weights; found {found}")
    return config


def load(folder: Path, dtype: str, ranks: int = 1) -> Loaded:
    """Load weights and tokenizer; of several ranks, each its part. Raises StartError with what to do."""
    config = read_config(folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    attention.register()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=pick_dtype(dtype, str(config.get("dtype") or config.get("torch_dtype") or "float32"), device),
            attn_implementation=attention.NAME,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            distributed_config=DistributedConfig(tp_size=ranks) if ranks > 1 else None,
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except SafetensorError as error:
        raise StartError(Reason.MODEL_INVALID, f"the weights in {folder} are damaged: {error}") from error
    except Exception as error:  # a config from anywhere may break anything in there
        raise StartError(Reason.MODEL_UNSUPPORTED, f"{folder}: {error}") from error
    refuse_incomplete(folder, found["missing_keys"])
    # A part is loaded to where it belongs.
    model = model.eval() if ranks > 1 else model.to(device).eval()
    refuse_unsupported(model.config)
    return Loaded(model, tokenizer, stop_ids(model, tokenizer), max_positions(model.config), device)


def refuse_incomplete(folder: Path, missing: Collection[str]) -> None:
    """Raises StartError when weights are missing: transformers would go on with random ones."""
    if missing:
        raise StartError(Reason.MODEL_INVALID, f"{folder} lacks {len(missing)} weights, among them {min(missing)}")


def refuse_unsupported(config: Any) -> None:
    """Raises StartError for attention that the paged cache would compute wrongly."""
    unknown = set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS
    if unknown:
        raise StartError(Reason.MODEL_UNSUPPORTED, f"layers of kind {', '.join(sorted(unknown))} are not supported")
    if getattr(config, "attn_logit_softcapping", None):
        raise StartError(Reason.MODEL_UNSUPPORTED, "attention with softcapped logits is not supported")
    if getattr(config, "is_encoder_decoder", False):
        raise StartError(Reason.MODEL_UNSUPPORTED, "encoder-decoder models are not supported, only decoders")


def pick_dtype(wanted: str, stored: str, device: torch.device) -> torch.dtype:
    """`auto`: what is stored, unless the device computes it slowly."""
    if wanted == "auto":
        quick = stored in ("bfloat16", "float16") if device.type == "cuda" else stored == "bfloat16" and has_bfloat16()
        wanted = stored if quick else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[wanted]


def has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 itself; emulated it is slower than float32."""
    return not cpu_flags().isdisjoint({"avx512_bf16", "amx_bf16"})


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """End-of-sequence ids as `generate` takes them: the generation config, else the tokenizer."""
    generation: GenerationConfig | None = getattr(model, "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = tokenizer.eos_token_id
    return frozenset([ids] if isinstance(ids, int) else ids or [])


def max_positions(config: Any) -> int:
    """Tokens that the model's positions allow."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # Beyond this length it turns all positions of a step differently, also those of other, shorter requests.
        return int(rope["original_max_position_embeddings"])
    for name in ("max_position_embeddings", "n_positions", "n_ctx"):
        if value := getattr(config, name, None):
            return int(value)
    return 1 << 20
