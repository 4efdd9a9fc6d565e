"""From a pod's status to a stable reason and sentence."""

from typing import Any

import pytest

from tokenpool_operator.trouble import Trouble, of_pod

Raw = dict[str, Any]


def pod(status: Raw) -> Raw:
    return {"metadata": {"name": "p-0"}, "status": status}


def container(state: Raw, last: Raw | None = None, name: str = "engine", ready: bool = False) -> Raw:
    return {"name": name, "image": "img:1", "ready": ready, "state": state, "lastState": last or {}}


def ended(code: int, message: str = "", reason: str = "Error") -> Raw:
    return {"terminated": {"exitCode": code, "message": message, "reason": reason}}


CRASH = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
PULL_DETAIL = "rpc error: code = NotFound desc = not found"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes fit"}


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        pytest.param({}, None, id="just made"),
        pytest.param({"containerStatuses": [container({"running": {}})]}, None, id="loading"),
        pytest.param(
            {"containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})]}, None, id="creating"
        ),
        pytest.param({"conditions": [UNSCHEDULABLE]}, Trouble("Unschedulable", "0/1 nodes fit"), id="no node"),
        pytest.param(
            {"containerStatuses": [container({"waiting": {"reason": "ErrImagePull", "message": PULL_DETAIL}})]},
            Trouble("ImagePullBackOff", f"image img:1 cannot be had: {PULL_DETAIL}"),
            id="first pull error",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    container(
                        {
                            "waiting": {
                                "reason": "ImagePullBackOff",
                                "message": f'Back-off pulling image "img:1": ErrImagePull: {PULL_DETAIL}',
                            }
                        }
                    )
                ]
            },
            Trouble("ImagePullBackOff", f"image img:1 cannot be had: {PULL_DETAIL}"),
            id="pull back-off says the same",
        ),
        pytest.param(
            {"containerStatuses": [container({"waiting": {"reason": "ImagePullBackOff"}})]},
            Trouble("ImagePullBackOff", "image img:1 cannot be had"),
            id="pull back-off without a word",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    container(
                        {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hub" not found'}}
                    )
                ]
            },
            Trouble("CreateContainerConfigError", 'secret "hub" not found'),
            id="secret missing",
        ),
        pytest.param(
            {"containerStatuses": [container(CRASH, ended(2, "ModelNotFound: /models/x has no config.json."))]},
            Trouble("ModelNotFound", "/models/x has no config.json."),
            id="the engine says why",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    container({"running": {}}, ended(2, "ModelNotFound: /models/x has no config.json."))
                ]
            },
            Trouble("ModelNotFound", "/models/x has no config.json."),
            id="the same between two crashes, while it runs",
        ),
        pytest.param(
            {
                "initContainerStatuses": [container(CRASH, ended(2, "DownloadFailed: 401 from the hub."), "download")],
                "containerStatuses": [container({"waiting": {"reason": "PodInitializing"}})],
            },
            Trouble("DownloadFailed", "401 from the hub."),
            id="the download says why",
        ),
        pytest.param(
            {"containerStatuses": [container(CRASH, ended(1, "Traceback\nValueError: bad"))]},
            Trouble("CrashLoopBackOff", "container engine ended with exit code 1: ValueError: bad"),
            id="a bug is no reason word",
        ),
        pytest.param(
            {"containerStatuses": [container(CRASH, ended(1))]},
            Trouble(
                "CrashLoopBackOff", "container engine ended with exit code 1; see kubectl logs p-0 -c engine --previous"
            ),
            id="silent crash",
        ),
        pytest.param(
            {"containerStatuses": [container(CRASH, ended(137, reason="OOMKilled"))]},
            Trouble("OutOfMemory", "container engine was killed for memory; raise its memory limit"),
            id="killed for memory",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            Trouble("Evicted", "low on memory"),
            id="evicted",
        ),
        pytest.param({"phase": "Failed"}, Trouble("PodFailed", "the pod ended in phase Failed"), id="failed"),
        pytest.param(
            {"initContainerStatuses": [container(ended(0), name="download", ready=True)]}, None, id="download done"
        ),
    ],
)
def test_of_pod(status: Raw, trouble: Trouble | None) -> None:
    assert of_pod(pod(status)) == trouble


def test_messages_are_bounded() -> None:
    found = of_pod(pod({"conditions": [UNSCHEDULABLE | {"message": "x" * 5000}]}))
    assert found is not None
    assert len(found.message) == 600


NO_SECRET = 'MountVolume.SetUp failed for volume "keys" : secret "callers" not found'
MISSING = Trouble("VolumeNotMounted", 'volume "keys": secret "callers" not found')
WAITS = "Unable to attach or mount volumes: timed out waiting for the condition"
CREATING = {"containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})]}
RUNNING = {"phase": "Running", "containerStatuses": [container({"running": {}})]}
CRASHED = {"phase": "Running", "containerStatuses": [container(CRASH, ended(1))]}


@pytest.mark.parametrize(
    ("status", "node", "said", "trouble"),
    [
        pytest.param(CREATING, "n", NO_SECRET, MISSING, id="creating"),
        pytest.param({}, "n", NO_SECRET, MISSING, id="no status yet"),
        pytest.param(CREATING, "n", WAITS, None, id="only that it waits"),
        pytest.param(CREATING, "n", "", None, id="nothing said"),
        pytest.param(CREATING, "", NO_SECRET, None, id="no node yet"),
        pytest.param(RUNNING, "n", NO_SECRET, None, id="has begun since"),
        pytest.param(CRASHED, "n", NO_SECRET, of_pod(pod(CRASHED)), id="has crashed since"),
    ],
)
def test_what_the_kubelet_said_of_a_volume_counts_until_a_container_begins(
    status: Raw, node: str, said: str, trouble: Trouble | None
) -> None:
    assert of_pod(pod(status) | {"spec": {"nodeName": node}}, said) == trouble
