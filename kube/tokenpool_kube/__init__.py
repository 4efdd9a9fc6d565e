"""The door to the API server: plain dicts in and out, errors as types, an informer that a relist cannot fool.

Shared by operator and router. Knows Kubernetes, not pools.
"""

from tokenpool_kube.client import Cluster, Event, ObjectList
from tokenpool_kube.errors import (
    AlreadyExists,
    ApiError,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotConfigured,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from tokenpool_kube.informer import Informer
from tokenpool_kube.kinds import Kind, Object

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Cluster",
    "ClusterError",
    "Conflict",
    "Event",
    "Forbidden",
    "Gone",
    "Informer",
    "Invalid",
    "Kind",
    "NotConfigured",
    "NotFound",
    "Object",
    "ObjectList",
    "ServerError",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
]
