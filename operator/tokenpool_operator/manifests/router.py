"""The router's Deployment, and the rights it has: to read the EndpointSlices of its namespace and its own roster."""

from typing import Any

from tokenpool_api import names
from tokenpool_api.spec import PRE_STOP_SECONDS, TokenPoolSpec
from tokenpool_operator.manifests import metadata, security
from tokenpool_operator.manifests.metadata import Owner
from tokenpool_operator.manifests.router_arguments import arguments, secret_mounts
from tokenpool_operator.manifests.shard import grace_seconds, resources

Raw = dict[str, Any]

READ = ["get", "list", "watch"]
RBAC = "rbac.authorization.k8s.io"


def router_deployment(owner: Owner, spec: TokenPoolSpec, image: str) -> Raw:
    """Routers are replaced one by one, never below the wanted number."""
    labels = metadata.labels(owner.name, names.COMPONENT_ROUTER)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata.metadata(owner, names.router_name(owner.name), names.COMPONENT_ROUTER),
        "spec": {
            "replicas": spec.router.replicas,
            "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": metadata.selector(owner.name, names.COMPONENT_ROUTER)},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(owner, spec, image)},
        },
    }


def _pod_spec(owner: Owner, spec: TokenPoolSpec, image: str) -> Raw:
    return {
        "serviceAccountName": names.router_name(owner.name),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        # A router carries the streams of its shards, so it may go on as long as they may.
        "terminationGracePeriodSeconds": grace_seconds(spec),
        "securityContext": security.pod_security(),
        "containers": [_container(owner, spec, image)],
        "volumes": [security.TMP_VOLUME, *(mount.volume for mount in secret_mounts(spec.router))],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": metadata.selector(owner.name, names.COMPONENT_ROUTER)},
            }
        ],
    }


def _container(owner: Owner, spec: TokenPoolSpec, image: str) -> Raw:
    return {
        "name": "router",
        "image": image,
        "imagePullPolicy": spec.image_pull_policy.value,
        "args": arguments(owner, spec),
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [
            {"name": names.PORT_NAME_API, "containerPort": names.ROUTER_API_PORT, "protocol": "TCP"},
            {"name": names.PORT_NAME_ADMIN, "containerPort": names.ROUTER_ADMIN_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": _probe(names.PATH_READY, period=2, failures=2),
        "livenessProbe": _probe(names.PATH_HEALTH, period=10, failures=3),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": security.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [security.TMP_MOUNT, *(mount.mount for mount in secret_mounts(spec.router))],
    } | resources(spec.router.resources)


def _probe(path: str, *, period: int, failures: int) -> Raw:
    return {
        "httpGet": {"path": path, "port": names.PORT_NAME_ADMIN},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def router_role(owner: Owner) -> Raw:
    """Read-only on the EndpointSlices that list the shards, and on the pool's roster."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": metadata.metadata(owner, names.router_name(owner.name), names.COMPONENT_ROUTER),
        "rules": [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": READ},
            # Listing and watching by the field metadata.name is allowed where that name is.
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [names.roster_name(owner.name)],
                "verbs": READ,
            },
        ],
    }


def router_role_binding(owner: Owner) -> Raw:
    """Gives the role to the router's service account."""
    name = names.router_name(owner.name)
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata.metadata(owner, name, names.COMPONENT_ROUTER),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": owner.namespace}],
    }
