"""What a router was started with. Nothing here changes while the process lives."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from tokenpool_api import names


@dataclass(frozen=True)
class Settings:
    """Times in seconds, sizes in estimated tokens."""

    pool: str
    namespace: str
    shards: tuple[str, ...]
    queue_tokens: int
    queue_seconds: float
    connect_seconds: float
    first_byte_seconds: float
    stall_seconds: float
    drain_seconds: float
    host: str
    port: int
    admin_port: int


def parse(arguments: Sequence[str]) -> Settings:
    """Command line to settings; argparse tells the user what is wrong."""
    parser = argparse.ArgumentParser(prog="tokenpool-router", description="The front door of a TokenPool.")
    add = parser.add_argument
    add("--pool", default="", help="name of the TokenPool")
    add("--namespace", default="", help="its namespace")
    add("--shards", type=_addresses, default=(), help="host:port,… of the shards, instead of a pool on Kubernetes")
    add("--queue-tokens", type=int, default=262_144, help="estimated tokens of all waiting requests at most")
    add("--queue-seconds", type=float, default=30.0, help="how long a request may wait for a shard")
    add("--connect-seconds", type=float, default=2.0, help="how long connecting to a shard may take")
    add("--first-byte-seconds", type=float, default=600.0, help="how long a shard may take to begin its answer")
    add("--stall-seconds", type=float, default=300.0, help="how long a shard may be silent within an answer")
    add("--drain-seconds", type=float, default=30.0, help="time for running requests after SIGTERM")
    add("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod serves its pod address
    add("--port", type=int, default=names.ROUTER_API_PORT, help="port of the API")
    add("--admin-port", type=int, default=names.ROUTER_ADMIN_PORT, help="port of health, load and metrics")
    found = vars(parser.parse_args(arguments))
    if not found["shards"] and not (found["pool"] and found["namespace"]):
        parser.error("give --pool and --namespace, or --shards")
    return Settings(**found)


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(address.strip() for address in text.split(",") if address.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise argparse.ArgumentTypeError(f"not host:port: {address!r}")
    return addresses
