"""What Pod Security "restricted" and a read-only root ask of every pod: one text for shard and router."""

from typing import Any

Raw = dict[str, Any]

# The "nonroot" user of common minimal images.
USER_ID = 65532
TMP_VOLUME: Raw = {"name": "tmp", "emptyDir": {}}
TMP_MOUNT: Raw = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108  the pod's own emptyDir, not this machine's folder


def pod_security() -> Raw:
    """Pod-wide security context."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Raw:
    """Security context of each container."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
