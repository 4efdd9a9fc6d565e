"""Who may talk to whom. Clients reach routers only, routers reach their own shards, shards reach a hub or nobody."""

from typing import Any
from urllib.parse import urlsplit

from tokenpool_api import names
from tokenpool_api.spec import Model
from tokenpool_operator.manifests import metadata
from tokenpool_operator.manifests.metadata import Owner
from tokenpool_operator.manifests.model import HUB_SCHEME

Raw = dict[str, Any]

HTTPS_PORT = 443
# The API server listens on either, and is reached by an address that a pod selector cannot name.
API_SERVER_PORTS = (HTTPS_PORT, 6443)
DNS: Raw = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def shards_policy(owner: Owner, model: Model, hf_endpoint: str | None) -> Raw:
    """The pool's routers may ask everything; the cluster may read the admin port; out go names and downloads."""
    routers = {"podSelector": {"matchLabels": metadata.selector(owner.name, names.COMPONENT_ROUTER)}}
    ingress = [
        {"from": [routers], "ports": _tcp(names.SHARD_API_PORT, names.SHARD_ADMIN_PORT)},
        {"from": [{"namespaceSelector": {}}], "ports": _tcp(names.SHARD_ADMIN_PORT)},
    ]
    hub = [{"ports": _tcp(*_hub_ports(hf_endpoint))}] if model.source.startswith(HUB_SCHEME) else []
    return _policy(owner, names.shards_service_name(owner.name), names.COMPONENT_SHARD, ingress, [DNS, *hub])


def router_policy(owner: Owner, *, has_redis: bool) -> Raw:
    """Anybody may ask; out go requests to the pool's shards and routers, watches to the API server, and names.

    With Redis everything may go out: its address is in a Secret that the operator does not read.
    """
    shards = {"podSelector": {"matchLabels": metadata.selector(owner.name, names.COMPONENT_SHARD)}}
    routers = {"podSelector": {"matchLabels": metadata.selector(owner.name, names.COMPONENT_ROUTER)}}
    egress = [
        {"to": [shards], "ports": _tcp(names.SHARD_API_PORT, names.SHARD_ADMIN_PORT)},
        {"to": [routers], "ports": _tcp(names.ROUTER_ADMIN_PORT)},
        {"ports": _tcp(*API_SERVER_PORTS)},
        DNS,
    ]
    if has_redis:
        egress = [{}]
    ingress = [{"ports": _tcp(names.ROUTER_API_PORT, names.ROUTER_ADMIN_PORT)}]
    return _policy(owner, names.router_name(owner.name), names.COMPONENT_ROUTER, ingress, egress)


def _policy(owner: Owner, name: str, component: str, ingress: list[Raw], egress: list[Raw]) -> Raw:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata.metadata(owner, name, component),
        "spec": {
            "podSelector": {"matchLabels": metadata.selector(owner.name, component)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _hub_ports(hf_endpoint: str | None) -> tuple[int, ...]:
    """443, and the mirror's own port where it has one."""
    if not hf_endpoint:
        return (HTTPS_PORT,)
    parts = urlsplit(hf_endpoint)
    return tuple(sorted({HTTPS_PORT, parts.port or (80 if parts.scheme == "http" else HTTPS_PORT)}))


def _tcp(*ports: int) -> list[Raw]:
    return [{"protocol": "TCP", "port": port} for port in ports]
