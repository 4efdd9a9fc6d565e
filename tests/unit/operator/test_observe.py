"""The picture of a pool's children."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tokenpool_api import names
from tokenpool_api.status import ShardState
from tokenpool_operator.observe import RouterState, observe
from tokenpool_operator.trouble import Trouble

Raw = dict[str, Any]
PodOf = Callable[..., Raw]
UID = "uid-of-chat"


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        ({"ready": True}, ShardState.READY),
        ({"ready": True, "terminating": True}, ShardState.DRAINING),
        ({}, ShardState.STARTING),
        ({"node": ""}, ShardState.PENDING),
        ({"status": {"phase": "Failed"}}, ShardState.FAILING),
        ({"ready": True, "status": {"phase": "Failed"}}, ShardState.FAILING),
    ],
)
def test_every_shard_is_in_one_state(pod_of: PodOf, pod: Raw, state: ShardState) -> None:
    (shard,) = observe(UID, [pod_of(**pod)], {}).shards
    assert shard.state is state
    assert (shard.name, shard.revision, shard.ordinal) == ("chat-aaaaaaaa-0", "aaaaaaaa", 0)
    assert shard.created_at == 1767225600.0


def test_the_order_of_the_list_does_not_matter(pod_of: PodOf) -> None:
    pods = [pod_of(ordinal, revision) for revision in ("bbbbbbbb", "aaaaaaaa") for ordinal in range(12)]
    shuffled = random.Random(1).sample(pods, len(pods))
    assert observe(UID, pods, {}) == observe(UID, shuffled, {})


def test_what_another_controls_is_left_out(pod_of: PodOf) -> None:
    service = {"metadata": {"name": "chat", "uid": "u", "ownerReferences": [{"uid": "other", "controller": True}]}}
    orphan = {"metadata": {"name": "chat-shards", "uid": "v"}}
    seen = observe(UID, [pod_of(owner_uid="other")], {"Service": [service, orphan]})
    assert seen.shards == ()
    assert seen.children == {}


def test_only_ready_shards_are_asked_for_their_load(pod_of: PodOf) -> None:
    pods = [pod_of(0, ready=True), pod_of(1), pod_of(2, ready=True, terminating=True)]
    assert observe(UID, pods, {}).ready_addresses() == ("10.0.0.1",)


def deployment(replicas: int = 2, *, seen: int = 3, **status: Any) -> Raw:
    meta = {"name": "chat-router", "uid": "d", "generation": 3, "ownerReferences": [{"uid": UID, "controller": True}]}
    told = {"observedGeneration": seen, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2} | status
    return {"metadata": meta, "spec": {"replicas": replicas}, "status": told}


@pytest.mark.parametrize(
    ("item", "state"),
    [
        (deployment(), RouterState(2, True)),
        (deployment(seen=2), RouterState(2, False)),
        (deployment(replicas=3), RouterState(2, False)),
        (deployment(updatedReplicas=1, replicas=3), RouterState(2, False)),
        (deployment(availableReplicas=0), RouterState(0, False)),
        (
            deployment(
                conditions=[{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no"}]
            ),
            RouterState(2, True, Trouble("FailedCreate", "no")),
        ),
    ],
)
def test_the_router_is_read_from_its_deployment(item: Raw, state: RouterState) -> None:
    assert observe(UID, [], {"Deployment": [item]}).router == state


def test_a_router_pod_tells_why_it_does_not_start() -> None:
    labels = {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    waiting = {"name": "router", "image": "r:1", "state": {"waiting": {"reason": "ErrImageNeverPull", "message": "m"}}}
    pod = {"metadata": {"name": "chat-router-x", "labels": labels}, "status": {"containerStatuses": [waiting]}}
    seen = observe(UID, [pod], {"Deployment": [deployment()]})
    assert seen.router.trouble == Trouble("ErrImageNeverPull", "image r:1 cannot be had: m")
