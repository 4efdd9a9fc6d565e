"""What one token's keys and values take, read from a model's config."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CacheShape:
    """Of keys, and the same again of values."""

    layers: int
    heads: int
    size: int

    def bytes_per_token(self, item_bytes: int) -> int:
        """Keys and values of all layers, in numbers of `item_bytes`."""
        return 2 * self.layers * self.heads * self.size * item_bytes


def cache_shape(config: Any) -> CacheShape:
    """Layers, key-value heads and their size."""
    heads = config.num_attention_heads
    return CacheShape(
        layers=config.num_hidden_layers,
        heads=getattr(config, "num_key_value_heads", None) or heads,
        size=getattr(config, "head_dim", None) or config.hidden_size // heads,
    )
