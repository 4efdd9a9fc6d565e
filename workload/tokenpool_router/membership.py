"""Who may be picked: EndpointSlices as the API server has them, turned into members. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from tokenpool_api import names
from tokenpool_router.balancer import Member

SERVICE_LABEL: Final = "kubernetes.io/service-name"


def members(slices: Iterable[dict[str, Any]]) -> list[Member]:
    """Ready shards that are not leaving, by name. A shard in two slices counts once."""
    found: dict[str, Member] = {}
    for entry in slices:
        port = next((p["port"] for p in entry.get("ports") or [] if p.get("name") == names.PORT_NAME_API), None)
        for endpoint in entry.get("endpoints") or []:
            member = _member(endpoint, port or names.SHARD_API_PORT)
            if member:
                found[member.name] = member
    return [found[name] for name in sorted(found)]


def _member(endpoint: dict[str, Any], port: int) -> Member | None:
    conditions = endpoint.get("conditions") or {}
    # An absent `ready` means unknown, which the API asks readers to take as ready.
    if conditions.get("ready") is False or conditions.get("terminating"):
        return None
    target, addresses = endpoint.get("targetRef") or {}, endpoint.get("addresses") or []
    if not addresses or not target.get("name"):
        return None
    host = addresses[0]
    return Member(target["name"], f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def static_members(addresses: Iterable[str]) -> list[Member]:
    """Members without Kubernetes: "host:port", named by their address."""
    return [Member(address, address) for address in addresses]
