"""The stand-in of the model hub inside the cluster: a pod of the engine's image that runs `models/hub.py`."""

from pathlib import Path

import models.hub
from stack.install import MODEL_CLAIM, MODEL_NAME
from stack.kubectl import Kubectl, Object

CANARY_TOKEN = "hf_canary_that_must_not_be_seen_anywhere"  # noqa: S105 - a canary: the story searches for it
GATED = "demo/smollm2-gated"
OPEN = "demo/smollm2"
PORT = 8090
LABELS = {"app": "hub"}


def deploy_hub(kubectl: Kubectl, image: str) -> str:
    """Start it in kubectl's namespace and return its address; there is no DNS, so that is the Service's IP."""
    code = Path(models.hub.__file__).read_text()
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hub"}, "data": {"hub.py": code}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": CANARY_TOKEN}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "hub"},
            "spec": {"selector": LABELS, "ports": [{"port": PORT}]},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hub", "labels": LABELS}, "spec": pod_spec(image)},
    )
    kubectl.run("wait", "--for=condition=Ready", "pod/hub", "--timeout=90s")
    address = kubectl.get("service", "hub")["spec"]["clusterIP"]
    return f"http://{address}:{PORT}"


def pod_spec(image: str) -> Object:
    """The hub over the model's volume claim, within Pod Security "restricted"."""
    model = f"/models/{MODEL_NAME}"
    repositories = [f"--repository={OPEN}={model}", f"--repository={GATED}={model}", f"--gated={GATED}"]
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "hub",
                "image": image,
                "command": ["/opt/tokenpool/bin/python", "/code/hub.py", "--host=0.0.0.0", f"--port={PORT}"],
                "args": repositories,
                "env": [{"name": "HUB_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
                "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "code", "mountPath": "/code", "readOnly": True},
                    {"name": "model", "mountPath": "/models", "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "code", "configMap": {"name": "hub"}},
            {"name": "model", "persistentVolumeClaim": {"claimName": MODEL_CLAIM, "readOnly": True}},
        ],
    }
