"""Pod Security "restricted", checked on manifests. The API server checks it too; this says why without one.

Knows the published rules and one of ours, a read-only root; must not know whose pod it is.
"""

from collections.abc import Iterator
from typing import Any

Raw = dict[str, Any]
# What "restricted" lists, and image volumes, which have been added since.
ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SECCOMP_PROFILES = ("RuntimeDefault", "Localhost")
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


def restricted_violations(spec: Raw) -> list[str]:
    """Pod Security "restricted" plus a read-only root; empty when the pod spec keeps all of it."""
    found = [*_of_the_pod(spec)]
    for container in (container for kind in CONTAINER_LISTS for container in spec.get(kind) or []):
        found += (f"{container['name']}: {words}" for words in _of_a_container(container))
    return found


def _of_the_pod(spec: Raw) -> Iterator[str]:
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    for volume in spec.get("volumes") or []:
        yield from (f"volume {kind}" for kind in sorted(volume.keys() - {"name"} - ALLOWED_VOLUMES))
    context = spec.get("securityContext") or {}
    if context.get("seccompProfile", {}).get("type") not in SECCOMP_PROFILES:
        yield "seccomp"
    # Our images name no user, so a pod that leaves it out would not start.
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        yield "runs as root"
    if context.get("sysctls"):
        yield "sysctls"
    yield from _of_any_context(context)


def _of_a_container(container: Raw) -> Iterator[str]:
    context = container.get("securityContext") or {}
    if context.get("allowPrivilegeEscalation") is not False:
        yield "escalation"
    capabilities = context.get("capabilities") or {}
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "writable root"
    if context.get("privileged"):
        yield "privileged"
    if any(port.get("hostPort") for port in container.get("ports") or []):
        yield "host port"
    # What a container says for itself wins over what the pod says.
    if context.get("seccompProfile", {"type": "RuntimeDefault"}).get("type") not in SECCOMP_PROFILES:
        yield "seccomp"
    if context.get("runAsUser", 1) == 0 or context.get("runAsNonRoot", True) is not True:
        yield "runs as root"
    yield from _of_any_context(context)


def _of_any_context(context: Raw) -> Iterator[str]:
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "host process"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    if context.get("appArmorProfile", {"type": "RuntimeDefault"}).get("type") not in SECCOMP_PROFILES:
        yield "AppArmor"
    options = context.get("seLinuxOptions", {})
    types = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
    if options.get("user") or options.get("role") or options.get("type", "") not in types:
        yield "SELinux"
