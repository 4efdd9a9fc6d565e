"""Pod Security "restricted", checked on manifests. The API server checks it too; this says why without one."""

from collections.abc import Iterator
from typing import Any

Raw = dict[str, Any]
ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
    "image",
}


def restricted_violations(spec: Raw) -> Iterator[str]:
    """Pod Security "restricted" plus a read-only root, as far as our pods can break it."""
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes", []):
        yield from (f"volume {kind}" for kind in volume.keys() - {"name"} - ALLOWED_VOLUMES)
    context = spec.get("securityContext", {})
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "seccomp"
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        yield "runs as root"
    if context.get("sysctls"):
        yield "sysctls"
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        yield from (f"{container['name']}: {fault}" for fault in _container_violations(container))


def _container_violations(container: Raw) -> Iterator[str]:
    own = container.get("securityContext", {})
    if own.get("allowPrivilegeEscalation") is not False:
        yield "escalation"
    if own.get("capabilities") != {"drop": ["ALL"]}:
        yield "capabilities"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "writable root"
    if own.get("privileged") or any(port.get("hostPort") for port in container.get("ports", [])):
        yield "privileged"
    # What a container says of itself wins over the pod.
    if own.get("runAsNonRoot", True) is not True or own.get("runAsUser", 1) == 0:
        yield "runs as root"
    if own.get("seccompProfile", {}).get("type", "RuntimeDefault") != "RuntimeDefault":
        yield "seccomp"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
