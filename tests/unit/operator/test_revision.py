"""The revision: stable across releases and replica counts, different for whatever changes a shard."""

from typing import Any

import pytest

from tokenpool_api.spec import TokenPoolSpec
from tokenpool_operator.manifests.shard import shard_pod_spec
from tokenpool_operator.revision import revision_of

Raw = dict[str, Any]
BASE: Raw = {"model": {"source": "hf://org/name"}, "shards": {"min": 2}}


def revision(spec: Raw, **given: Any) -> str:
    parsed = TokenPoolSpec.model_validate(BASE | spec)
    return revision_of(shard_pod_spec("chat", parsed, **({"engine_image": "engine:1", "hf_endpoint": None} | given)))


def test_golden() -> None:
    # A new value here means that an upgrade of the operator replaces every shard of every user. Say so in CHANGELOG.md.
    assert revision({}) == "25eb65be"


@pytest.mark.parametrize(
    "spec",
    [
        {"shards": {"min": 9, "max": 10}},
        {"router": {"replicas": 3, "queue": {"maxTokens": 1}}},
        {"paused": True},
        {"shards": {"min": 2, "maxSequences": 64, "dtype": "auto"}},
        {"shards": {"min": 2, "tensorParallel": 1}},
        {"shards": {"min": 2, "performance": {}}},
        {"shards": {"min": 2, "performance": {"cudnnBenchmark": False, "cudaGraphs": True}}},
        {"rollout": {"drainSeconds": 120}},
    ],
)
def test_does_not_change_what_a_shard_is(spec: Raw) -> None:
    assert revision(spec) == revision({})


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"source": "hf://org/other"}},
        {"model": {"source": "hf://org/name", "revision": "abc"}},
        {"model": {"source": "hf://org/name", "credentialsSecret": {"name": "hub", "key": "token"}}},
        {"model": {"source": "hf://org/name", "servedName": "name"}},
        {"image": "engine:2"},
        {"imagePullPolicy": "Never"},
        {"shards": {"min": 2, "maxSequences": 63}},
        {"shards": {"min": 2, "tokenBudget": 1024}},
        {"shards": {"min": 2, "kvCacheTokens": 4096}},
        {"shards": {"min": 2, "maxModelLength": 4096}},
        {"shards": {"min": 2, "dtype": "float32"}},
        {"shards": {"min": 2, "threads": 2}},
        {"shards": {"min": 2, "tensorParallel": 2}},
        {"shards": {"min": 2, "quantization": "int8"}},
        {"shards": {"min": 2, "performance": {"matmulPrecision": "high"}}},
        {"shards": {"min": 2, "performance": {"cudnnBenchmark": True}}},
        {"shards": {"min": 2, "performance": {"cudaGraphs": False}}},
        {"shards": {"min": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}}},
        {"shards": {"min": 2, "nodeSelector": {"gpu": "h200"}}},
        {"shards": {"min": 2, "tolerations": [{"key": "gpu", "operator": "Exists"}]}},
        {"shards": {"min": 2, "priorityClassName": "high"}},
        {"rollout": {"drainSeconds": 60}},
        {"rollout": {"terminationGraceSeconds": 200}},
    ],
)
def test_every_field_that_makes_a_shard_is_in_it(spec: Raw) -> None:
    assert revision(spec) != revision({})


def test_the_installed_image_and_hub_are_in_it() -> None:
    assert len({revision({}), revision({}, engine_image="engine:2"), revision({}, hf_endpoint="http://hub:80")}) == 3


def test_key_order_does_not_matter() -> None:
    assert revision_of({"a": 1, "b": [2]}) == revision_of({"b": [2], "a": 1})
