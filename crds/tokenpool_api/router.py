"""The router's part of a TokenPool's spec: how requests wait, where they go, and who may send them."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tokenpool_api.base import SecretKey, SecretName, Spec
from tokenpool_api.shards import Resources

ORIGIN = r"^(\*|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)$"


class Policy(StrEnum):
    """How a shard is picked."""

    LEAST_TOKENS = "LeastTokens"
    LEAST_CONNECTIONS = "LeastConnections"
    ROUND_ROBIN = "RoundRobin"
    POWER_OF_TWO = "PowerOfTwo"
    PREFIX_AFFINITY = "PrefixAffinity"


class Queue(Spec):
    """Requests that wait in the router for a shard."""

    max_tokens: int = Field(
        default=262_144,
        ge=0,
        le=1_000_000_000,
        description="Estimated tokens of all waiting requests at most; beyond that requests are refused with 429 "
        "(503 without a ready shard) and the time after which to come back.",
    )
    timeout_seconds: int = Field(
        default=30,
        ge=0,
        le=3600,
        description="How long a request may wait for a shard; then it is refused in the same way.",
    )


class Redis(Spec):
    """A Redis that the pool's routers share."""

    secret_ref: SecretKey = Field(
        description="Secret key with the Redis' URL, such as redis://:password@host:6379/0 or rediss://… for TLS."
    )


class Tls(Spec):
    """HTTPS for clients."""

    secret_ref: SecretName = Field(
        description="Secret of type kubernetes.io/tls. A renewed certificate is taken up without a restart."
    )


class Cors(Spec):
    """Calls from browsers."""

    allowed_origins: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=300, pattern=ORIGIN)]], Field(min_length=1, max_length=32)
    ] = Field(description="Origins that browsers may call from, such as https://app.example.com; * for any.")


class Router(Spec):
    """The pool's front door."""

    replicas: int = Field(default=1, ge=1, le=64, description="Router pods.")
    workers: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Processes in each router pod that carry requests, about one a CPU core. They know each other's "
        "load at once; routers know it through Redis, or not at all.",
    )
    policy: Policy = Field(
        default=Policy.LEAST_TOKENS,
        description="How a shard is picked: LeastTokens (fewest outstanding tokens), LeastConnections (fewest "
        "requests), RoundRobin, PowerOfTwo (the better of two drawn at random), PrefixAffinity (LeastTokens, but a "
        "shard that has computed the prompt's beginning is ahead by what it saves).",
    )
    queue: Queue = Field(
        default_factory=Queue,
        description="Bounds of waiting.",
    )
    api_keys_secret: SecretName | None = Field(
        default=None,
        description="Secret with one entry a caller: hashes of its API keys, quota and priority (docs/api-keys.md). "
        "Changes take effect without a restart. Default: requests need no key.",
    )
    redis: Redis | None = Field(
        default=None,
        description="Lets several routers add up their loads and their callers' use. Never in a request's path: "
        "without it, or while it is away, each router goes by what it knows itself.",
    )
    tls: Tls | None = Field(default=None, description="HTTPS for clients. Default: plain HTTP.")
    cors: Cors | None = Field(default=None, description="Calls from browsers. Default: none from other origins.")
    resources: Resources | None = Field(default=None, description="Compute resources of a router pod.")
