"""What a scripted kubelet makes of a pod: each script is a value, and `pod_status` says what the pod's status reads.

Pure: time and addresses are arguments. The kubelet decides when to show which step.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """Runs at once, Ready after so long. On deletion it takes `drain_seconds` to end."""

    after_seconds: float = 0.0
    drain_seconds: float = 0.0


@dataclass(frozen=True)
class NeverReady:
    """Runs, but its readiness probe fails for ever."""


@dataclass(frozen=True)
class StaysPending:
    """No node takes it."""

    message: str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


@dataclass(frozen=True)
class ImagePullBackOff:
    """Bound to the node, and its image cannot be had."""

    message: str = 'Back-off pulling image "registry.invalid/none": not found'


@dataclass(frozen=True)
class Terminated:
    """Its first container has ended with a message, and is not started again (restartPolicy Never) or not yet."""

    message: str
    exit_code: int = 2
    reason: str = "Error"


@dataclass(frozen=True)
class CrashLoop:
    """Its first container ends again and again; shown between two starts."""

    message: str
    exit_code: int = 2
    restarts: int = 3


Script: TypeAlias = Ready | NeverReady | StaysPending | ImagePullBackOff | Terminated | CrashLoop


def pod_status(pod: Object, script: Script, *, is_ready: bool, address: str, now: str) -> Object:
    """The whole status of `pod` while `script` plays. `now` is RFC 3339; `is_ready` matters for Ready only."""
    if isinstance(script, StaysPending):
        unscheduled = _condition("PodScheduled", False, now, "Unschedulable", script.message)
        return {"phase": "Pending", "conditions": [unscheduled]}
    ready = is_ready and isinstance(script, Ready)
    failed = isinstance(script, Terminated) and pod["spec"].get("restartPolicy") == "Never"
    status: Object = {
        "phase": "Failed" if failed else "Pending" if isinstance(script, ImagePullBackOff) else "Running",
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "startTime": now,
        "conditions": [
            _condition("PodScheduled", True, now),
            _condition("Initialized", True, now),
            _condition("ContainersReady", ready, now, *(() if ready else ("ContainersNotReady", ""))),
            _condition("Ready", ready, now, *(() if ready else ("ContainersNotReady", ""))),
        ],
        "containerStatuses": _container_statuses(pod, script, ready=ready, now=now),
    }
    if not isinstance(script, ImagePullBackOff):
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return status


def _container_statuses(pod: Object, script: Script, *, ready: bool, now: str) -> list[Object]:
    """The first container acts; the others share its fate where the whole pod waits, and run where it fails."""
    statuses = []
    for position, container in enumerate(pod["spec"]["containers"]):
        acts = position == 0 or isinstance(script, ImagePullBackOff)
        played = script if acts else Ready()
        state, last, restarts = _container_state(played, now)
        statuses.append(
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "" if isinstance(played, ImagePullBackOff) else f"sha256:{container['image']}",
                "ready": ready if acts else isinstance(script, Ready),
                "started": "running" in state,
                "restartCount": restarts,
                "state": state,
                "lastState": last,
            }
        )
    return statuses


def _container_state(script: Script, now: str) -> tuple[Object, Object, int]:
    """`state`, `lastState` and `restartCount`."""
    match script:
        case ImagePullBackOff(message):
            return {"waiting": {"reason": "ImagePullBackOff", "message": message}}, {}, 0
        case Terminated(message, exit_code, reason):
            return {"terminated": _terminated(message, exit_code, reason, now)}, {}, 0
        case CrashLoop(message, exit_code, restarts):
            waiting = {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}
            return {"waiting": waiting}, {"terminated": _terminated(message, exit_code, "Error", now)}, restarts
        case _:
            return {"running": {"startedAt": now}}, {}, 0


def _terminated(message: str, exit_code: int, reason: str, now: str) -> Object:
    return {"exitCode": exit_code, "reason": reason, "message": message, "startedAt": now, "finishedAt": now}


def _condition(kind: str, holds: bool, now: str, reason: str = "", message: str = "") -> Object:
    condition = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": now}
    return condition | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})
