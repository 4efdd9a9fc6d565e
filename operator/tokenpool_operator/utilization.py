"""How busy a pool is, from its shards' own accounts. Pure; knows no addresses and no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenpool_api.wire import ShardLoad


@dataclass(frozen=True)
class PoolLoad:
    """The sum over the shards that answered; None where nobody did."""

    utilization: int | None = None
    tokens_per_second: int | None = None


NOTHING_KNOWN: Final = PoolLoad()


def summarize(loads: Sequence[ShardLoad]) -> PoolLoad:
    """KV cache reserved over capacity in percent, and tokens per second, of all shards that answered."""
    if not loads:
        return NOTHING_KNOWN
    capacity = sum(load.kv_tokens_capacity for load in loads)
    reserved = sum(load.kv_tokens_reserved for load in loads)
    utilization = round(100 * reserved / capacity) if capacity else None
    return PoolLoad(utilization, round(sum(load.tokens_per_second for load in loads)))
