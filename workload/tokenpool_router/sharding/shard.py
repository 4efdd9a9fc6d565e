"""A shard as the balancing sees it, and what is known of its load."""

from dataclasses import dataclass


class UnknownShard(KeyError):
    """No shard of that id is a member."""


class TooManyShards(ValueError):
    """More shards than the sharding was made for."""


@dataclass(frozen=True)
class Shard:
    """A shard that may be picked. Two with the same id and address are the same shard."""

    id: str
    address: str = ""
    """ "host:port", for the caller's use."""
    weight: float = 1.0
    """Share of a full shard's traffic, above 0."""
    speed: float = 1.0
    """Relative to the pool's other shards, above 0."""
    draining: bool = False
    """Gets no new request."""
    max_requests: int = 0
    """Requests at a time, 0 for no bound."""
    max_tokens: int = 0
    """Gets no new request while it has that many outstanding, 0 for no bound."""
    revision: str = ""

    def __post_init__(self) -> None:
        if not (self.weight > 0 and self.speed > 0):
            raise ValueError(f"shard {self.id!r}: weight and speed must be above 0; set draining to keep it idle")
        if self.max_requests < 0 or self.max_tokens < 0:
            raise ValueError(f"shard {self.id!r}: max_requests and max_tokens must not be negative")


@dataclass(frozen=True)
class ShardLoad:
    """What one shard has from here: tokens not yet done, and requests not yet ended."""

    shard: Shard
    outstanding_tokens: int
    in_flight: int
    ejected: bool
    """It failed lately and rests."""
