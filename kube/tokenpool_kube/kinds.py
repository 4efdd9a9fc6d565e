"""Which REST path a kind of object lives under. Written down: discovery would cost calls, rights and a cache.

Must not know what any of these objects are used for.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from tokenpool_api import names

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON gives it."""


@dataclass(frozen=True)
class Kind:
    """One resource of the API: where it is served and what its objects call themselves."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What objects of this kind carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
        """The path of one object, of its subresource, or (without a name) of the collection.

        Raises ValueError for an empty name or namespace: a DELETE on such a path would hit the whole collection.
        """
        if name == "" or namespace == "":
            raise ValueError(f"{self.kind} needs a name and a namespace that are not empty")
        if name is not None and self.namespaced and namespace is None:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts += [self.plural, *(part for part in (name, sub) if part is not None)]
        return "/" + "/".join(quote(part, safe="") for part in parts)


POD: Final = Kind("", "v1", "pods", "Pod")
SERVICE: Final = Kind("", "v1", "services", "Service")
SERVICE_ACCOUNT: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAP: Final = Kind("", "v1", "configmaps", "ConfigMap")
PERSISTENT_VOLUME_CLAIM: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODE: Final = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACE: Final = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
EVENT: Final = Kind("events.k8s.io", "v1", "events", "Event")
LEASE: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
ENDPOINT_SLICE: Final = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
DEPLOYMENT: Final = Kind("apps", "v1", "deployments", "Deployment")
NETWORK_POLICY: Final = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_DISRUPTION_BUDGET: Final = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ROLE: Final = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CUSTOM_RESOURCE_DEFINITION: Final = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
TOKENPOOL: Final = Kind(names.GROUP, names.VERSION, names.PLURAL, names.KIND)
