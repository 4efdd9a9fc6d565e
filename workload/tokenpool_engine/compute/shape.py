"""What one token's keys and values take on one rank, read from a model."""

from dataclasses import dataclass
from typing import Any

from tokenpool_engine.compute.plan import local_heads


@dataclass(frozen=True)
class CacheShape:
    """Of keys, and the same again of values."""

    layers: int
    heads: int
    size: int

    def bytes_per_token(self, item_bytes: int) -> int:
        """Keys and values of all layers, in numbers of `item_bytes`."""
        return 2 * self.layers * self.heads * self.size * item_bytes


def cache_shape(model: Any) -> CacheShape:
    """Layers, key-value heads that this rank holds, and their size."""
    config = model.config
    heads = config.num_attention_heads
    return CacheShape(
        layers=config.num_hidden_layers,
        heads=local_heads(model, getattr(config, "num_key_value_heads", None) or heads),
        size=getattr(config, "head_dim", None) or config.hidden_size // heads,
    )
