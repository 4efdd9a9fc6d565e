"""What the operator was started with: flags, each with an environment variable behind it.

It must not know a pool: nothing here changes while the process lives.
"""

import argparse
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Everything that is the same for all pools. Times are in seconds."""

    engine_image: str
    router_image: str
    hf_endpoint: str | None = None
    watch_namespace: str | None = None
    pod_name: str = "tokenpool-operator"
    pod_namespace: str = "default"
    health_port: int = 8080
    metrics_port: int = 8081
    lease_seconds: float = 15.0
    resync_seconds: float = 60.0
    load_seconds: float = 5.0
    replace_seconds: float = 10.0
    """A failed shard younger than this waits for its replacement, so that a node that refuses shards is not flooded."""


@dataclass(frozen=True)
class Flag:
    """One flag: its environment variable, its default (None: required) and its help."""

    name: str
    env: str
    default: str | None
    kind: type
    help: str


FLAGS = (
    Flag("engine-image", "TOKENPOOL_ENGINE_IMAGE", None, str, "image of shards whose pool names none"),
    Flag("router-image", "TOKENPOOL_ROUTER_IMAGE", None, str, "image of the routers"),
    Flag("hf-endpoint", "TOKENPOOL_HF_ENDPOINT", "", str, "Hugging Face hub mirror for hf:// sources"),
    Flag("watch-namespace", "TOKENPOOL_WATCH_NAMESPACE", "", str, "the only namespace to look at; empty: all"),
    Flag("pod-name", "POD_NAME", socket.gethostname(), str, "this replica's name in the lease"),
    Flag("pod-namespace", "POD_NAMESPACE", "default", str, "namespace of the lease"),
    Flag("health-port", "TOKENPOOL_HEALTH_PORT", "8080", int, "port of /healthz"),
    Flag("metrics-port", "TOKENPOOL_METRICS_PORT", "8081", int, "port of /metrics"),
    Flag("lease-seconds", "TOKENPOOL_LEASE_SECONDS", "15", float, "how long a silent leader is waited for"),
    Flag("resync-seconds", "TOKENPOOL_RESYNC_SECONDS", "60", float, "how often a pool is looked at without an event"),
    Flag("load-seconds", "TOKENPOOL_LOAD_SECONDS", "5", float, "how often shards are asked for their load"),
    Flag(
        "replace-seconds", "TOKENPOOL_REPLACE_SECONDS", "10", float, "youngest age at which a failed shard is replaced"
    ),
)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Read flags, then the environment, then defaults. Exits with a usage line when an image is missing."""
    parser = argparse.ArgumentParser(prog="tokenpool-operator", description="Run the TokenPool operator.")
    for flag in FLAGS:
        value = environ.get(flag.env) or flag.default
        parser.add_argument(
            f"--{flag.name}",
            type=flag.kind,
            default=value,
            required=value is None,
            metavar="VALUE",
            help=f"{flag.help} (environment: {flag.env})",
        )
    given = vars(parser.parse_args(argv))
    for optional in ("hf_endpoint", "watch_namespace"):
        given[optional] = given[optional] or None
    return Settings(**given)
