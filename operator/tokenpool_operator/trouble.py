"""Why a pod does not become ready, read from its status, and problems of a pass, as reason and sentence.

Texts are made stable here: the kubelet alternates between two reasons of one pull error and counts seconds into its
messages, and each such change would otherwise be a status write. Pure; knows no other pod.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]


@dataclass(frozen=True)
class Trouble:
    """A stable CamelCase reason and a sentence for people."""

    reason: str
    message: str


# Kubelet's waiting reasons that do not pass by themselves, and the one word that stands for each group.
PULL_REASONS = {
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "InvalidImageName": "InvalidImageName",
    "ErrImageNeverPull": "ErrImageNeverPull",
}
CONFIG_REASONS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
BACK_OFF_PREFIX = re.compile(r'^Back-off pulling image "[^"]*"(: ErrImagePull: )?')
# Other words of the kubelet on mounts only say that it waits.
MOUNT_FAILURE = re.compile(r'MountVolume\.\w+ failed for volume ("[^"]+") ?: (.*)', re.DOTALL)
# What engine and download write before they give up, with exit code 2.
FATAL_LINE = re.compile(r"^([A-Z][A-Za-z]{2,63}): (\S.*)$")
FATAL_EXIT_CODE = 2
MESSAGE_LENGTH = 600


def of_pod(pod: Raw, mount_failure: str = "") -> Trouble | None:
    """The first thing that keeps this pod from becoming ready, or None while nothing is wrong.

    `mount_failure` is what the kubelet said of a volume, if it did.
    """
    status = pod.get("status", {})
    if status.get("phase") in ("Failed", "Succeeded"):
        return _of_ended_pod(pod)
    unschedulable = _unschedulable(status)
    if unschedulable:
        return unschedulable
    for container in _container_statuses(status):
        trouble = _of_container(container, pod["metadata"]["name"])
        if trouble:
            return trouble
    return _of_volume(mount_failure) if is_preparing(pod) else None


def is_preparing(pod: Raw) -> bool:
    """It has a node, and no container of it has ever begun: images or volumes are awaited."""
    status = pod.get("status", {})
    if not pod.get("spec", {}).get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    if status.get("phase", "Pending") != "Pending":
        return False
    return all(
        "waiting" in container.get("state", {}) and not container.get("lastState")
        for container in _container_statuses(status)
    )


def _of_volume(failure: str) -> Trouble | None:
    found = MOUNT_FAILURE.match(failure)
    return Trouble("VolumeNotMounted", _cut(f"volume {found[1]}: {found[2]}")) if found else None


def _of_ended_pod(pod: Raw) -> Trouble:
    status = pod.get("status", {})
    for container in _container_statuses(status):
        trouble = _of_container(container, pod["metadata"]["name"])
        if trouble:
            return trouble
    reason = status.get("reason") or "PodFailed"
    return Trouble(reason, _cut(status.get("message") or f"the pod ended in phase {status['phase']}"))


def _unschedulable(status: Raw) -> Trouble | None:
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            reason = condition.get("reason") or "Unschedulable"
            return Trouble(reason, _cut(condition.get("message") or "no node fits"))
    return None


def _container_statuses(status: Raw) -> Iterator[Raw]:
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _of_container(container: Raw, pod_name: str) -> Trouble | None:
    if container.get("ready"):
        return None
    waiting = container.get("state", {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in PULL_REASONS:
        detail = BACK_OFF_PREFIX.sub("", waiting.get("message") or "")
        return Trouble(
            PULL_REASONS[reason], _cut(f"image {container.get('image')} cannot be had: {detail}".rstrip(": "))
        )
    if reason in CONFIG_REASONS:
        return Trouble(reason, _cut(waiting.get("message") or f"container {container['name']} cannot be created"))
    return _of_last_exit(container, pod_name)


def _of_last_exit(container: Raw, pod_name: str) -> Trouble | None:
    state, last = container.get("state", {}), container.get("lastState", {})
    ended = state.get("terminated") or last.get("terminated") or {}
    code = ended.get("exitCode", 0)
    if code == 0:
        return None
    if ended.get("reason") == "OOMKilled":
        return Trouble("OutOfMemory", f"container {container['name']} was killed for memory; raise its memory limit")
    line = _last_line(ended.get("message") or "")
    fatal = FATAL_LINE.match(line)
    if code == FATAL_EXIT_CODE and fatal:
        return Trouble(fatal[1], _cut(fatal[2]))
    tail = f": {line}" if line else f"; see kubectl logs {pod_name} -c {container['name']} --previous"
    return Trouble("CrashLoopBackOff", _cut(f"container {container['name']} ended with exit code {code}{tail}"))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_LENGTH else text[: MESSAGE_LENGTH - 1] + "…"
