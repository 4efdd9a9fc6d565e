"""Manifests of a volume over a folder of the node, bound to one claim. Pure."""

from typing import Any

Object = dict[str, Any]
SIZE = "10Gi"


def volume_objects(name: str, namespace: str, directory: str) -> list[Object]:
    """PersistentVolume and claim; the volume is for that claim only and its files are never deleted."""
    volume_name = f"{namespace}-{name}"
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name},
        "spec": {
            **common,
            "capacity": {"storage": SIZE},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": name},
            "hostPath": {"path": directory, "type": "Directory"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**common, "volumeName": volume_name, "resources": {"requests": {"storage": SIZE}}},
    }
    return [volume, claim]
