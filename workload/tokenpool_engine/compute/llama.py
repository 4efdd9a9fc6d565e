"""The weights of a Llama-shaped model, read from a Hugging Face one: what the lean loops compute with.

Llama-shaped: RMS norm before attention and before a SiLU-gated MLP, rotary positions over whole heads, grouped heads.
Whether a model is one is read from its modules here, and proved by its logits before anybody is served (selfcheck.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

MODEL_TYPES: Final = frozenset({"llama", "mistral", "qwen2", "qwen3"})
# Kinds of rotary positions whose angles depend on the position only. The others also look at the step's length.
STATIC_ROPE: Final = frozenset({"default", "linear", "llama3", "yarn"})


class NotLlama(Exception):
    """The model has another shape; the text says which part."""


@dataclass(frozen=True)
class LlamaLayer:
    """One layer. Weights are [out, in]; q, k and v are one matrix. Norms of heads are Qwen3's, the bias is Qwen2's."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: Tensor
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    window: int | None
    """Positions that a token sees, itself included."""


@dataclass(frozen=True)
class Llama:
    """A whole model. Cosine and sine are float32 [positions, head size / 2]."""

    heads: int
    kv_heads: int
    head_size: int
    epsilon: float
    scaling: float
    embedding: Tensor
    layers: tuple[LlamaLayer, ...]
    norm: Tensor
    head: Tensor
    cosine: Tensor
    sine: Tensor

    @property
    def hidden(self) -> int:
        """Size of the residual stream."""
        return self.embedding.shape[1]

    @property
    def inner(self) -> int:
        """Size between the two halves of an MLP."""
        return self.layers[0].gate.shape[0]

    @property
    def vocabulary(self) -> int:
        """Rows of the head."""
        return self.head.shape[0]


def read(model: Any, windows: Mapping[int, int | None], positions: int) -> Llama:
    """The model's weights, shared with it where they need no fusing. Raises NotLlama.

    `windows` are what attention was told by each layer of the stock forward, `positions` how many will be used.
    """
    config, body = model.config, getattr(model, "model", None)
    if config.model_type not in MODEL_TYPES or body is None:
        raise NotLlama(f"a {config.model_type} model")
    refuse_variants(config)
    first = body.layers[0].self_attn
    cosine, sine = angles(body.rotary_emb, positions, model.device)
    return Llama(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=first.head_dim,
        epsilon=float(config.rms_norm_eps),
        scaling=float(first.scaling),
        embedding=body.embed_tokens.weight.data,
        layers=tuple(_layer(layer, windows.get(index)) for index, layer in enumerate(body.layers)),
        norm=body.norm.weight.data,
        head=model.lm_head.weight.data,
        cosine=cosine,
        sine=sine,
    )


def refuse_variants(config: Any) -> None:
    """Raises NotLlama for what the types above can be told to do and the lean loops do not."""
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind not in STATIC_ROPE:
        raise NotLlama(f"rotary positions of kind {kind!r}")
    if float(rope.get("partial_rotary_factor") or 1.0) != 1.0:
        raise NotLlama("rotary positions over a part of each head")
    if config.hidden_act != "silu":
        raise NotLlama(f"activation {config.hidden_act!r}")
    if getattr(config, "mlp_bias", False):
        raise NotLlama("a bias in the MLP")


def angles(rotary: Any, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position, as the model's own module gives them."""
    places = torch.arange(positions, device=device)[None]
    cosine, sine = rotary(torch.zeros(1, dtype=torch.float32, device=device), places)
    half = cosine.shape[-1] // 2
    return cosine[0, :, :half].contiguous(), sine[0, :, :half].contiguous()


def _layer(layer: Any, window: int | None) -> LlamaLayer:
    attention, mlp = layer.self_attn, layer.mlp
    if attention.o_proj.bias is not None:
        raise NotLlama("a bias behind attention")
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    on_gpu = mlp.gate_proj.weight.is_cuda
    if on_gpu:
        # The model keeps what it multiplies with; a second copy of its largest weights would be room for cache.
        join((mlp.gate_proj, mlp.up_proj), share=True)
    return LlamaLayer(
        attention_norm=layer.input_layernorm.weight.data,
        qkv=join(projections, share=on_gpu),
        qkv_bias=torch.cat([part.bias.data for part in projections]) if projections[0].bias is not None else None,
        query_norm=_weight(attention, "q_norm"),
        key_norm=_weight(attention, "k_norm"),
        out=attention.o_proj.weight.data,
        mlp_norm=layer.post_attention_layernorm.weight.data,
        gate=mlp.gate_proj.weight.data,
        up=mlp.up_proj.weight.data,
        down=mlp.down_proj.weight.data,
        window=window,
    )


def join(projections: Sequence[Any], *, share: bool) -> Tensor:
    """Their weights as one matrix. `share`: from now on each of them has its part of it, and no memory of its own."""
    whole = torch.cat([part.weight.data for part in projections])
    if share:
        sizes = [len(part.weight) for part in projections]
        for part, weight in zip(projections, torch.split(whole, sizes), strict=True):
            part.weight.data = weight
    return whole


def stacked(first: Tensor, second: Tensor) -> Tensor:
    """Both as one matrix, without a copy where one lies behind the other already."""
    is_one = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    if is_one and second.storage_offset() == first.storage_offset() + first.numel():
        return first.as_strided((len(first) + len(second), first.shape[1]), first.stride())
    return torch.cat((first, second))


def _weight(module: Any, name: str) -> Tensor | None:
    part = getattr(module, name, None)
    return None if part is None else part.weight.data
