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


class RosterEntry(Wire):
    """What routers are to do with one shard."""

    weight: float = Field(default=1.0, gt=0, le=1)
    """Share of a full shard's traffic."""
    draining: bool = False
    """No new request goes there."""
    revision: str = ""


class Roster(Wire):
    """What the operator tells the routers, as JSON in the pool's ConfigMap. The generation rises with every change."""

    generation: int = Field(default=0, ge=0)
    shards: dict[str, RosterEntry] = Field(default_factory=dict)
    """By pod name. A shard that is not listed has the full weight."""


class RouterShardLoad(Wire):
    """What one router has given to one shard and not yet got back."""

    name: str
    address: str
    outstanding_tokens: int = Field(ge=0)
    in_flight_requests: int = Field(ge=0)
    ejected: bool
    weight: float = Field(default=1.0, ge=0)
    draining: bool = False


class RevisionLoad(Wire):
    """How one revision's shards answered through this router in the last minute."""

    requests: int = Field(ge=0)
    errors: int = Field(ge=0)
    ttft_p50_seconds: float | None = None
    ttft_p99_seconds: float | None = None


class RouterLoad(Wire):
    """One router's account: its own requests only, all of its workers together."""

    queued_requests: int = Field(ge=0)
    queued_tokens: int = Field(ge=0)
    shards: tuple[RouterShardLoad, ...]
    workers: int = Field(default=1, ge=0)
    roster_generation: int = Field(default=0, ge=0)
    """The oldest that any worker has applied."""
    arriving_prompt_tokens_per_second: float = Field(default=0.0, ge=0)
    """What clients ask for, refused requests included; means over the last ten seconds."""
    arriving_answer_tokens_per_second: float = Field(default=0.0, ge=0)
    drain_tokens_per_second: float = Field(default=0.0, ge=0)
    """Work that got done, prompt and answer tokens together."""
    revisions: dict[str, RevisionLoad] = Field(default_factory=dict)
