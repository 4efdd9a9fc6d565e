"""What shards and routers answer on their admin port at `/load`; the operator and the router read it.

Counters only grow while a process lives. All numbers are since process start unless the name says otherwise.
"""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Wire(BaseModel):
    """JSON in camelCase; fields that a newer peer adds are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class ShardLoad(Wire):
    """One shard's own account of its work."""

    ready: bool
    draining: bool
    running_requests: int = Field(ge=0)
    waiting_requests: int = Field(ge=0)
    outstanding_tokens: int = Field(ge=0)
    """Prompt tokens not yet computed plus tokens that may still be generated, over running and waiting requests."""
    kv_tokens_reserved: int = Field(ge=0)
    kv_tokens_capacity: int = Field(ge=0)
    prompt_tokens_total: int = Field(ge=0)
    generated_tokens_total: int = Field(ge=0)
    steps_total: int = Field(ge=0)
    tokens_per_second: float = Field(ge=0)
    """Generated tokens per second, mean over the last ten seconds."""


class RouterShardLoad(Wire):
    """What one router has given to one shard and not yet got back."""

    name: str
    address: str
    outstanding_tokens: int = Field(ge=0)
    in_flight_requests: int = Field(ge=0)
    ejected: bool


class RouterLoad(Wire):
    """One router's account: its own requests only."""

    queued_requests: int = Field(ge=0)
    queued_tokens: int = Field(ge=0)
    shards: tuple[RouterShardLoad, ...]
