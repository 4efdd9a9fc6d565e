"""Put the product on a cluster: the chart with our images, and namespaces that enforce Pod Security."""

from collections.abc import Mapping
from pathlib import Path

from images.build import BuiltImage
from stack.kubectl import Kubectl, Object

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "tokenpool"
RELEASE = "tokenpool"
SYSTEM_NAMESPACE = "tokenpool-system"
MODEL_CLAIM = "smollm2"
MODEL_NAME = "SmolLM2-135M-Instruct"


def restricted_namespace(name: str) -> Object:
    """A namespace in which the API server refuses every pod that is not Pod Security "restricted"."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }


def chart_values(images: Mapping[str, BuiltImage]) -> list[str]:
    """helm arguments that put the locally built images into the chart."""
    arguments: list[str] = []
    for name, prefix in (("operator", "image"), ("router", "router.image"), ("engine", "engine.image")):
        repository, tag = images[name].ref.rsplit(":", 1)
        arguments += ["--set", f"{prefix}.repository={repository}", "--set-string", f"{prefix}.tag={tag}"]
    return arguments


def install_chart(kubectl: Kubectl, images: Mapping[str, BuiltImage], *more: str) -> str:
    """Install or upgrade the release and wait until the operator is up; helm's own words come back."""
    kubectl.apply(restricted_namespace(SYSTEM_NAMESPACE))
    return kubectl.within(SYSTEM_NAMESPACE).helm(
        "upgrade", "--install", RELEASE, str(CHART), "--wait", "--timeout", "180s", *chart_values(images), *more
    )


def uninstall_chart(kubectl: Kubectl) -> str:
    """Remove the release; the CRD and the pools stay."""
    return kubectl.within(SYSTEM_NAMESPACE).helm("uninstall", RELEASE, "--wait")
