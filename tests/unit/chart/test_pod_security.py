"""The checker itself: one good pod, and every way of spoiling it that "restricted" forbids."""

import copy
from typing import Any

import pytest

from support.pod_security import restricted_violations

Raw = dict[str, Any]
GOOD: Raw = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "containers": [
        {
            "name": "c",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}
POD: dict[str, tuple[Raw, str]] = {
    "host network": ({"hostNetwork": True}, "hostNetwork"),
    "host processes": ({"hostPID": True}, "hostPID"),
    "host IPC": ({"hostIPC": True}, "hostIPC"),
    "host path": ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volume hostPath"),
    "no user": (
        {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}},
        "runs as root",
    ),
    "no seccomp": ({"securityContext": {"runAsNonRoot": True, "runAsUser": 1}}, "seccomp"),
    "sysctls": ({"securityContext": {**GOOD["securityContext"], "sysctls": [{"name": "a", "value": "b"}]}}, "sysctls"),
    "Windows host": (
        {"securityContext": {**GOOD["securityContext"], "windowsOptions": {"hostProcess": True}}},
        "host process",
    ),
}
CONTAINER: dict[str, tuple[Raw, str]] = {
    "escalation": ({"allowPrivilegeEscalation": True}, "c: escalation"),
    "writable root": ({"readOnlyRootFilesystem": False}, "c: writable root"),
    "not all dropped": ({"capabilities": {"drop": ["NET_RAW"]}}, "c: capabilities"),
    "one added": ({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}, "c: capabilities"),
    "privileged": ({"privileged": True}, "c: privileged"),
    "own seccomp": ({"seccompProfile": {"type": "Unconfined"}}, "c: seccomp"),
    "own user": ({"runAsUser": 0}, "c: runs as root"),
    "may be root": ({"runAsNonRoot": False}, "c: runs as root"),
    "procMount": ({"procMount": "Unmasked"}, "c: procMount"),
    "AppArmor": ({"appArmorProfile": {"type": "Unconfined"}}, "c: AppArmor"),
    "SELinux": ({"seLinuxOptions": {"type": "spc_t"}}, "c: SELinux"),
}


def test_a_good_pod_passes() -> None:
    assert restricted_violations(GOOD) == []


@pytest.mark.parametrize(("change", "words"), POD.values(), ids=list(POD))
def test_a_spoilt_pod(change: Raw, words: str) -> None:
    assert restricted_violations(GOOD | change) == [words]


@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
@pytest.mark.parametrize(("change", "words"), CONTAINER.values(), ids=list(CONTAINER))
def test_a_spoilt_container(kind: str, change: Raw, words: str) -> None:
    bad = copy.deepcopy(GOOD["containers"][0])
    bad["securityContext"] |= change
    assert restricted_violations(GOOD | {kind: [bad]}) == [words]


def test_a_host_port() -> None:
    bad = GOOD["containers"][0] | {"ports": [{"containerPort": 80, "hostPort": 80}]}
    assert restricted_violations(GOOD | {"containers": [bad]}) == ["c: host port"]
