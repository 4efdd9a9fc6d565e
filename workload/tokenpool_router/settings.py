"""What a router was started with. Nothing here changes while the process lives."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from tokenpool_api import names

POLICIES = ("LeastTokens", "LeastConnections", "RoundRobin", "PowerOfTwo", "PrefixAffinity")


@dataclass(frozen=True)
class Settings:
    """Times in seconds, sizes in estimated tokens. Empty texts and zeros mean: not used, no bound."""

    pool: str
    namespace: str
    shards: tuple[str, ...]
    served_name: str
    workers: int
    policy: str
    shard_requests: int
    shard_tokens: int
    queue_tokens: int
    queue_seconds: float
    keys_dir: str
    redis_url_file: str
    tls_dir: str
    cors_origins: tuple[str, ...]
    access_log: bool
    connect_seconds: float
    first_byte_seconds: float
    stall_seconds: float
    total_seconds: float
    drain_seconds: float
    host: str
    port: int
    admin_port: int


def parser() -> argparse.ArgumentParser:
    """The flags that the control process and its workers share."""
    made = argparse.ArgumentParser(prog="tokenpool-router", description="The front door of a TokenPool.")
    add = made.add_argument
    add("--pool", default="", help="name of the TokenPool")
    add("--namespace", default="", help="its namespace")
    add("--shards", type=_addresses, default=(), help="host:port,… of the shards, instead of a pool on Kubernetes")
    add("--served-name", default="", help="the model's name; with it GET /v1/models is answered without a shard")
    add("--workers", type=int, default=1, help="processes that carry requests")
    add("--policy", choices=POLICIES, default=POLICIES[0], help="how a shard is picked")
    add("--shard-requests", type=int, default=0, help="requests that one shard may have at a time (0: no bound)")
    add("--shard-tokens", type=int, default=0, help="tokens that one shard may have outstanding (0: no bound)")
    add("--queue-tokens", type=int, default=262_144, help="estimated tokens of all waiting requests at most")
    add("--queue-seconds", type=float, default=30.0, help="how long a request may wait for a shard")
    add("--keys-dir", default="", help="folder with one file a caller: its API keys' hashes, quota, priority")
    add("--redis-url-file", default="", help="file with the URL of a Redis that routers share")
    add("--tls-dir", default="", help="folder with tls.crt and tls.key; both are read again when they change")
    add("--cors-origins", type=_words, default=(), help="origins that browsers may call from (* for any)")
    add("--no-access-log", dest="access_log", action="store_false", help="do not log requests")
    add("--connect-seconds", type=float, default=2.0, help="how long connecting to a shard may take")
    add("--first-byte-seconds", type=float, default=600.0, help="how long a shard may take to begin its answer")
    add("--stall-seconds", type=float, default=300.0, help="how long a shard may be silent within an answer")
    add("--total-seconds", type=float, default=7200.0, help="how long one request may take altogether")
    add("--drain-seconds", type=float, default=30.0, help="time for running requests after SIGTERM")
    add("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod serves its pod address
    add("--port", type=int, default=names.ROUTER_API_PORT, help="port of the API")
    add("--admin-port", type=int, default=names.ROUTER_ADMIN_PORT, help="port of health, load and metrics")
    return made


def parse(arguments: Sequence[str]) -> Settings:
    """Command line to settings; argparse tells the user what is wrong."""
    made = parser()
    found = vars(made.parse_args(arguments))
    if not found["shards"] and not (found["pool"] and found["namespace"]):
        made.error("give --pool and --namespace, or --shards")
    if not 1 <= found["workers"] <= 64:
        made.error("--workers must be from 1 to 64")
    return Settings(**found)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _addresses(text: str) -> tuple[str, ...]:
    addresses = _words(text)
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise argparse.ArgumentTypeError(f"not host:port: {address!r}")
    return addresses
