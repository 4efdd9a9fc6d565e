"""What a router is started with: the flags that follow from the spec, and the Secrets that it reads as files.

Secrets are mounted as folders, never as single files: only folders follow a Secret that changes.
"""

from dataclasses import dataclass
from typing import Any, Final

from tokenpool_api.router import Router
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]

FOLDER: Final = "/etc/tokenpool"
# Beyond what a shard runs at a time: enough that it never waits for the router, few enough that its own queue is short.
SHARD_QUEUE_SHARE: Final = 4


@dataclass(frozen=True)
class SecretMount:
    """One Secret as a folder."""

    name: str
    secret: str
    keys: tuple[tuple[str, str], ...] = ()
    """Key and file name of those that are wanted; all by their own names if empty."""

    @property
    def volume(self) -> Raw:
        """The pod's volume. A Secret that is missing holds the pod back, and the kubelet says which."""
        items = [{"key": key, "path": path} for key, path in self.keys]
        return {"name": self.name, "secret": {"secretName": self.secret} | ({"items": items} if items else {})}

    @property
    def mount(self) -> Raw:
        """The container's mount."""
        return {"name": self.name, "mountPath": self.folder, "readOnly": True}

    @property
    def folder(self) -> str:
        """Where it is in the container."""
        return f"{FOLDER}/{self.name}"


def secret_mounts(router: Router) -> tuple[SecretMount, ...]:
    """The Secrets that the spec names."""
    found = []
    if router.api_keys_secret:
        found.append(SecretMount("keys", router.api_keys_secret.name))
    if router.redis:
        found.append(SecretMount("redis", router.redis.secret_ref.name, ((router.redis.secret_ref.key, "url"),)))
    if router.tls:
        found.append(SecretMount("tls", router.tls.secret_ref.name))
    return tuple(found)


def arguments(owner: Owner, spec: TokenPoolSpec) -> list[str]:
    """The router's command line."""
    router, sequences = spec.router, spec.shards.max_sequences
    flags = {
        "--pool": owner.name,
        "--namespace": owner.namespace,
        "--served-name": spec.model.served_name or owner.name,
        "--workers": str(router.workers),
        "--policy": router.policy.value,
        "--shard-requests": str(sequences + max(sequences // SHARD_QUEUE_SHARE, 1)),
        "--queue-tokens": str(router.queue.max_tokens),
        "--queue-seconds": str(router.queue.timeout_seconds),
        "--drain-seconds": str(spec.rollout.drain_seconds),
    }
    folders = {mount.name: mount.folder for mount in secret_mounts(router)}
    if "keys" in folders:
        flags["--keys-dir"] = folders["keys"]
    if "redis" in folders:
        flags["--redis-url-file"] = folders["redis"] + "/url"
    if "tls" in folders:
        flags["--tls-dir"] = folders["tls"]
    if router.cors:
        flags["--cors-origins"] = ",".join(router.cors.allowed_origins)
    return [word for pair in flags.items() for word in pair]
