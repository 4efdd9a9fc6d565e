"""Whether a model can be split over ranks, and what each of them then holds.

The split itself is transformers' own: a plan that names for each projection how its weights are cut.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch

from tokenpool_engine.failure import Reason, StartError

FIELD: Final = "spec.shards.tensorParallel"
# Projections that make keys. A plan that cuts one of them by columns gives each rank its part of the heads; other plans
# gather what the projection gives, so that each rank sees all heads.
KEY_PROJECTIONS: Final = ("k_proj", "qkv_proj", "query_key_value")


def refuse_too_few_gpus(ranks: int) -> None:
    """Raises StartError when there are GPUs, but not one for each rank."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else None
    if gpus is not None and gpus < ranks:
        raise StartError(
            Reason.TENSOR_PARALLEL,
            f"{FIELD} is {ranks} but the shard sees {gpus} GPUs; ask for {ranks} in spec.shards.resources.limits "
            "(nvidia.com/gpu)",
        )


def refuse_unsplittable(config: Any, ranks: int) -> None:
    """Raises StartError for a model that transformers cannot split over so many ranks."""
    name = getattr(config, "model_type", "this model")
    plan = getattr(config, "base_model_tp_plan", None)
    if not plan:
        raise StartError(Reason.TENSOR_PARALLEL, f"transformers has no plan to split {name}; set {FIELD} to 1")
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    if splits_heads(plan) and (heads % ranks or key_heads % ranks):
        fitting = [str(n) for n in range(1, key_heads + 1) if not key_heads % n and not heads % n]
        raise StartError(
            Reason.TENSOR_PARALLEL,
            f"{heads} attention heads and {key_heads} key-value heads of {name} are not divisible by {ranks}; "
            f"set {FIELD} to {' or '.join(fitting)}",
        )


def splits_heads(plan: Mapping[str, str]) -> bool:
    """Whether each rank sees only its part of the key-value heads."""
    return any(name.rpartition(".")[2] in KEY_PROJECTIONS and style == "colwise" for name, style in plan.items())


def local_heads(model: Any, heads: int) -> int:
    """Key-value heads that this rank's cache holds; all of them unless the model is split by heads."""
    ranks = getattr(model, "tp_size", None) or 1
    return heads // ranks if ranks > 1 and splits_heads(model.tp_plan) else heads
