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
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"{container['name']}: escalation"
        if own.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{container['name']}: capabilities"
        if own.get("readOnlyRootFilesystem") is not True:
            yield f"{container['name']}: writable root"
        if own.get("privileged") or any(port.get("hostPort") for port in container.get("ports", [])):
            yield f"{container['name']}: privileged"
