"""What the operator says of a pool. It is computed whole at each pass and written only when it differs.

Conditions follow KEP-1623: all of them are always present, each with a reason and the generation it speaks of.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_SHARD_DETAILS = 100
Text = Annotated[str, Field(max_length=1024)]
ShortText = Annotated[str, Field(max_length=316)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000_000)]


class Status(BaseModel):
    """Base of all status objects: camelCase; unknown fields are left out when read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class ConditionType(StrEnum):
    """The five conditions of a pool, always all present."""

    READY = "Ready"
    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    SCALING_ACTIVE = "ScalingActive"


class Condition(Status):
    """One aspect of the pool's state."""

    type: ConditionType = Field(description="Which aspect.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")] = (
        Field(description="Stable CamelCase word for programs.")
    )
    message: Text = Field(description="Sentence for people: what is so, and what to do about it.")
    last_transition_time: Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})] = Field(
        description="When status last changed."
    )
    observed_generation: Count = Field(description="metadata.generation that this condition speaks of.")


class ShardCounts(Status):
    """Shards by state; every shard pod is in exactly one of ready, pending and draining."""

    desired: Count = Field(default=0, description="Shards that the pool wants now.")
    current: Count = Field(default=0, description="Shards that exist and are not leaving: ready and pending.")
    ready: Count = Field(default=0, description="Shards that answer requests.")
    pending: Count = Field(default=0, description="Shards that are scheduled, pulled, loaded or failing.")
    draining: Count = Field(default=0, description="Shards that are leaving and take no new requests.")
    updated: Count = Field(default=0, description="Ready shards of the wanted revision.")


class Revision(Status):
    """What the shards are made of."""

    current: ShortText = Field(default="", description="Revision that most ready shards have; empty before the first.")
    updating: ShortText = Field(default="", description="Revision being rolled out; empty when none is.")
    model: Text = Field(default="", description="Model source, and revision if one is given, of the wanted revision.")
    image: Text = Field(default="", description="Image of the wanted revision.")


class ShardState(StrEnum):
    """Where one shard is in its life."""

    PENDING = "Pending"
    STARTING = "Starting"
    READY = "Ready"
    FAILING = "Failing"
    DRAINING = "Draining"


class ShardDetail(Status):
    """One shard."""

    name: ShortText = Field(description="Pod name.")
    node: ShortText = Field(default="", description="Node name; empty while unscheduled.")
    revision: ShortText = Field(description="Revision of this shard.")
    state: ShardState = Field(description="Where the shard is in its life.")
    message: Text = Field(default="", description="Why the shard is not ready, if it is known.")


class TokenPoolStatus(Status):
    """The observed state of a pool."""

    observed_generation: Count = Field(default=0, description="metadata.generation that this status speaks of.")
    selector: ShortText = Field(default="", description="Label selector of the shards, for the scale subresource.")
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        ),
    ] = Field(default=(), description="The five conditions: Ready, Available, Progressing, Degraded, ScalingActive.")
    shards: ShardCounts = Field(default_factory=ShardCounts, description="Shards by state.")
    ready_summary: ShortText = Field(default="", description="Ready shards over wanted shards, for the table.")
    utilization: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None,
        description="Percent of the ready shards' KV cache that running and waiting requests hold. "
        "Absent while no shard reports.",
    )
    tokens_per_second: Count | None = Field(
        default=None, description="Tokens generated per second by all shards, mean over ten seconds."
    )
    revision: Revision = Field(default_factory=Revision, description="What the shards are made of.")
    shard_details: Annotated[
        tuple[ShardDetail, ...],
        Field(
            max_length=MAX_SHARD_DETAILS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default=(), description=f"The first {MAX_SHARD_DETAILS} shards by name.")
