"""How a model source becomes volumes, mounts, the path that the engine is told, and the container that downloads.

Only the download container ever sees the hub's token.
"""

from dataclasses import dataclass
from typing import Any

from tokenpool_api.spec import Model
from tokenpool_operator.manifests import security

Raw = dict[str, Any]

MODELS = "/models"
DOWNLOADED = f"{MODELS}/hf"
HUB_SCHEME = "hf://"


@dataclass(frozen=True)
class ModelFiles:
    """Where the engine finds the model: its path, and the volume behind it unless the image holds it."""

    path: str
    volume: Raw | None = None

    def mount(self, *, read_only: bool) -> list[Raw]:
        """Mounts of one container."""
        return [{"name": "models", "mountPath": MODELS, "readOnly": read_only}] if self.volume else []


def files(source: str, pull_policy: str) -> ModelFiles:
    """Resolve a source that the CRD let pass."""
    scheme, _, rest = source.partition("://")
    match scheme:
        case "hf":
            return ModelFiles(DOWNLOADED, {"name": "models", "emptyDir": {}})
        case "pvc":
            claim, _, path = rest.partition("/")
            volume = {"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
            return ModelFiles(f"{MODELS}/{path}".rstrip("/"), volume)
        case "oci":
            return ModelFiles(MODELS, {"name": "models", "image": {"reference": rest, "pullPolicy": pull_policy}})
        case "file":
            return ModelFiles(rest)
        case _:
            raise ValueError(f"unknown model source {source}")


def download_container(model: Model, image: str, pull_policy: str, hf_endpoint: str | None) -> Raw:
    """The init container that fetches an hf:// source into the shared volume."""
    args = ["download", "--source", model.source]
    if model.revision:
        args += ["--revision", model.revision]
    return {
        "name": "download",
        "image": image,
        "imagePullPolicy": pull_policy,
        "args": [*args, "--into", DOWNLOADED],
        "env": _download_env(model, hf_endpoint),
        "securityContext": security.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [security.TMP_MOUNT, {"name": "models", "mountPath": MODELS}],
    }


def _download_env(model: Model, hf_endpoint: str | None) -> list[Raw]:
    env: list[Raw] = [
        {"name": "HOME", "value": security.TMP_MOUNT["mountPath"]},
        {"name": "HF_HUB_DISABLE_TELEMETRY", "value": "1"},
    ]
    if hf_endpoint:
        env.append({"name": "HF_ENDPOINT", "value": hf_endpoint})
    if model.credentials_secret:
        secret = {"name": model.credentials_secret.name, "key": model.credentials_secret.key}
        env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}})
    return env
