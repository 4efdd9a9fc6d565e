"""The operator dies or is gone at bad moments: the pool ends in the same state, and deletion never sticks."""

import re
from collections.abc import Callable, Iterator

import pytest

from stack.install import SYSTEM_NAMESPACE
from stack.kubectl import Kubectl, wait_until
from stack.pool import Pool

OWNED_KINDS = (
    "pods,services,serviceaccounts,networkpolicies,poddisruptionbudgets,deployments.apps,replicasets.apps,"
    "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io"
)


@pytest.fixture
def operator(installed: Kubectl) -> Iterator[Kubectl]:
    """kubectl in the operator's namespace; the operator runs again afterwards."""
    kubectl = installed.within(SYSTEM_NAMESPACE)
    yield kubectl
    kubectl.run("scale", "deployment/tokenpool-operator", "--replicas=1")
    kubectl.run("rollout", "status", "deployment/tokenpool-operator", "--timeout=60s")


def send_away(operator: Kubectl) -> None:
    operator.run("scale", "deployment/tokenpool-operator", "--replicas=0")
    wait_until(
        lambda: operator.list("pods", "app.kubernetes.io/component=operator"),
        lambda pods: not pods,
        60,
        "operator gone",
    )


def owned(pool: Pool) -> list[str]:
    selector = f"tokenpool.dev/pool={pool.name}"
    return pool.kubectl.run("get", OWNED_KINDS, "-l", selector, "-o", "name").split()


def normalized(pool: Pool) -> list[str]:
    """What a pool owns, without what differs between any two pools: its name, hashes, and the Deployment's pods."""
    names = [name for name in owned(pool) if f"/{pool.name}-router-" not in name]
    return sorted(re.sub(r"-[0-9a-f]{8}-", "-REVISION-", name.replace(pool.name, "POOL")) for name in names)


def test_pool_deleted_while_the_operator_is_away(make_pool: Callable[[str], Pool], operator: Kubectl) -> None:
    pool = make_pool("orphan")
    pool.apply()
    pool.wait_ready(shards=1)
    assert len(owned(pool)) >= 8
    send_away(operator)

    assert pool.client().models.list().data[0].id == "smollm2-135m-instruct", "serving needs no operator"
    pool.kubectl.run("delete", "tokenpool", "orphan", "--timeout=30s")
    wait_until(lambda: owned(pool), lambda names: not names, 120, "everything of the pool goes")


def test_operator_killed_in_the_middle_of_creating(make_pool: Callable[[str], Pool], operator: Kubectl) -> None:
    calm = make_pool("calm")
    calm.apply({"shards": {"min": 2}})
    calm.wait_ready(shards=2)
    wanted = normalized(calm)
    calm.kubectl.run("delete", "tokenpool", "calm")

    pool = make_pool("killed")
    pool.apply({"shards": {"min": 2}})
    wait_until(lambda: owned(pool), lambda names: len(names) >= 2, 30, "creation has begun")
    operator.run("delete", "pods", "-l", "app.kubernetes.io/component=operator", "--grace-period=0", "--force")
    pool.wait_ready(shards=2)
    assert normalized(pool) == wanted
