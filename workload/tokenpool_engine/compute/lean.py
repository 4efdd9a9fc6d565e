"""Computes a step of a Llama-shaped model in torch with as few operations as there can be: fused projections, packed
weights, no modules. What cpu_kernel.c is tested against, and what runs where that cannot: on GPUs and older CPUs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tokenpool_engine.compute.llama import Llama, LlamaLayer, stacked
from tokenpool_engine.compute.paged import PagedStep, attend_rows, plan
from tokenpool_engine.compute.pages import Cache, Look
from tokenpool_engine.compute.rows import Rows
from tokenpool_engine.compute.shape import CacheShape

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """One layer's weights, ready to multiply."""

    source: LlamaLayer
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


class Lean:
    """The lean loop over a cache of so many pages."""

    def __init__(self, model: Llama, pages: int, page_tokens: int) -> None:
        self._model = model
        self.page_tokens = page_tokens
        weight = model.embedding
        shape = CacheShape(len(model.layers), model.kv_heads, model.head_size)
        self.cache = Cache(shape, pages, page_tokens, weight.dtype, weight.device)
        self._layers = [prepare(layer) for layer in model.layers]
        self._head = linear(model.head, None)

    @torch.inference_mode()
    def logits(self, rows: Rows) -> Tensor:
        """float32 [samples, vocabulary]."""
        step = plan(rows, self.cache)
        return self.head(self.hidden(step).index_select(0, step.samples))

    def hidden(self, step: PagedStep) -> Tensor:
        """The residual stream behind the last layer, [rows, hidden]."""
        model = self._model
        x = functional.embedding(step.ids, model.embedding)
        cosine, sine = (table.index_select(0, step.positions)[:, None] for table in (model.cosine, model.sine))
        for index, layer in enumerate(self._layers):
            source = layer.source
            query, key, value = self._heads(layer, self._norm(x, source.attention_norm), cosine, sine)
            seen = attend_rows(query, key, value, step, Look(index, model.scaling, source.window))
            x = x + layer.out(seen)
            gate, up = layer.gate_up(self._norm(x, source.mlp_norm)).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate) * up)
        return x

    def head(self, x: Tensor) -> Tensor:
        """Logits of rows of the residual stream."""
        return self._head(self._norm(x, self._model.norm)).float()

    def clear(self, pages: list[int]) -> None:
        """Zero these pages."""
        self.cache.clear(pages)

    def close(self) -> None:
        """Nothing to end."""

    def _heads(self, layer: Layer, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [rows, heads, size], turned by their positions."""
        model, source = self._model, layer.source
        fused = layer.qkv(x).view(x.shape[0], -1, model.head_size)
        query, key, value = torch.split(fused, [model.heads, model.kv_heads, model.kv_heads], dim=1)
        if source.query_norm is not None and source.key_norm is not None:
            query, key = self._norm(query, source.query_norm), self._norm(key, source.key_norm)
        return rotate(query, cosine, sine), rotate(key, cosine, sine), value

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """As Hugging Face's: in float32, rounded, then weighted."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._model.epsilon)
        return weight * (wide * scale).to(x.dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the halves of each head: x [rows, heads, size], cosine and sine [rows, 1, size / 2]."""
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def prepare(layer: LlamaLayer) -> Layer:
    """Fuse and pack one layer."""
    return Layer(
        layer,
        qkv=linear(layer.qkv, layer.qkv_bias),
        out=linear(layer.out, None),
        gate_up=linear(stacked(layer.gate, layer.up), None),
        down=linear(layer.down, None),
    )


def linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """x → x · weightᵀ + bias. bfloat16 is packed once on CPUs: half the time for a few rows, equal bit by bit."""
    if weight.device.type == "cpu" and weight.dtype == torch.bfloat16:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        multiply = torch.ops.mkldnn._linear_pointwise.default
        return lambda x: multiply(x, packed, bias, "none", [], "")
    return lambda x: functional.linear(x, weight, bias)
