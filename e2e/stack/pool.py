"""One TokenPool as a user sees it: apply, wait for what it says of itself, ask it."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass

import yaml
from openai import OpenAI

from stack.install import MODEL_CLAIM, MODEL_NAME, ROOT
from stack.kubectl import Kubectl, Object, wait_until

EXAMPLE = ROOT / "examples" / "smollm2-cpu.yaml"


def example_pool(name: str, spec: Object | None = None) -> Object:
    """The README's example under another name; `spec` is merged over it (None removes a field)."""
    pool: Object = copy.deepcopy(yaml.safe_load(EXAMPLE.read_text()))
    pool["metadata"] = {"name": name}
    pool["spec"]["model"]["source"] = f"pvc://{MODEL_CLAIM}/{MODEL_NAME}"
    merge(pool["spec"], spec or {})
    return pool


def merge(target: Object, patch: Object) -> None:
    """JSON merge patch, in place."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        else:
            target[key] = value


@dataclass(frozen=True)
class Pool:
    """A pool on the cluster. `forward` gives a URL on loopback for a Service of the pool's namespace."""

    kubectl: Kubectl
    name: str
    forward: Callable[[str, str, int], str]

    def apply(self, spec: Object | None = None) -> str:
        """Write the example with `spec` over it; what kubectl said comes back."""
        return self.kubectl.apply(example_pool(self.name, spec))

    def read(self) -> Object:
        """The resource as it is now."""
        return self.kubectl.get("tokenpool", self.name)

    def patch(self, spec: Object) -> str:
        """Merge-patch the spec, as `kubectl edit` would."""
        return self.kubectl.run("patch", "tokenpool", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def condition(self, kind: str) -> Object:
        """One condition; empty while the operator has not written any."""
        return find_condition(self.read(), kind)

    def wait_condition(self, kind: str, status: str, *, reason: str = "", seconds: float = 180) -> Object:
        """Wait for a condition that speaks of the present generation."""

        def holds(pool: Object) -> bool:
            found = find_condition(pool, kind)
            return (
                found.get("status") == status
                and found.get("observedGeneration") == pool["metadata"]["generation"]
                and reason in found["reason"]
            )

        pool = wait_until(self.read, holds, seconds, f"{self.name}: {kind}={status} {reason}")
        return find_condition(pool, kind)

    def wait_ready(self, shards: int | None = None, seconds: float = 240) -> Object:
        """Wait until the pool says Ready, with that many shards if a number is given; the resource comes back."""
        self.wait_condition("Ready", "True", seconds=seconds)
        return wait_until(
            self.read,
            lambda pool: shards is None or pool["status"]["shards"]["ready"] == shards,
            seconds,
            f"{self.name}: {shards} shards ready",
        )

    def shards(self) -> list[Object]:
        """The pool's shard pods that are not leaving, by name."""
        selector = f"tokenpool.dev/pool={self.name},app.kubernetes.io/component=shard"
        pods = [pod for pod in self.kubectl.list("pods", selector) if "deletionTimestamp" not in pod["metadata"]]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def url(self) -> str:
        """Base URL of the pool's router on loopback."""
        return self.forward(self.kubectl.namespace, self.name, 80)

    def client(self) -> OpenAI:
        """The real client, without retries of its own: a test wants to see what the pool did."""
        return OpenAI(base_url=f"{self.url()}/v1", api_key="none", max_retries=0, timeout=120)


def find_condition(pool: Object, kind: str) -> Object:
    """One condition of a resource; empty when it is not there."""
    conditions: list[Object] = pool.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})
