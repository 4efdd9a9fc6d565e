"""What a request to the API server asks for, read from its method and path: to aim faults and to tell writes apart."""

from collections.abc import Mapping
from dataclasses import dataclass

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Call:
    """One request in Kubernetes' own words, as RBAC sees it. `resource` includes the subresource: `pods/status`."""

    verb: str
    resource: str
    namespace: str | None
    name: str | None
    path: str

    @property
    def is_write(self) -> bool:
        return self.verb in WRITE_VERBS


def parse_call(method: str, path: str, query: Mapping[str, str]) -> Call:
    """Paths that are not of the resource API (/version, /openapi) get an empty resource."""
    parts = [part for part in path.split("/") if part]
    prefix = {"api": 2, "apis": 3}.get(parts[0] if parts else "", len(parts))
    rest = parts[prefix:]
    namespace = None
    # /namespaces/x is the object x; /namespaces/x/pods is something inside it.
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = "/".join([rest[0], *rest[2:]]) if rest else ""
    name = rest[1] if len(rest) > 1 else None
    return Call(_verb(method, name, query), resource, namespace, name, path)


def _verb(method: str, name: str | None, query: Mapping[str, str]) -> str:
    if method == "GET" and query.get("watch") in ("true", "1"):
        return "watch"
    if method == "GET":
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method.lower())
