"""A wrong pool is refused with a message or says what is wrong; the good spec heals it with no manual delete."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from stack.kubectl import CommandFailed
from stack.pool import Pool


class Refused(NamedTuple):
    """A spec that the API server refuses, and the words a user sees."""

    spec: dict[str, Any]
    message: str


REFUSED = {
    "min above max": Refused({"shards": {"min": 3, "max": 2}}, "shards.min must not be greater than shards.max"),
    "unknown scheme": Refused({"model": {"source": "https://example.com/m"}}, "model.source must be hf://org/name"),
    "unknown field": Refused({"shards": {"minn": 1}}, 'unknown field "spec.shards.minn"'),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_refused_at_the_door(case: Refused, make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("refused")
    with pytest.raises(CommandFailed) as failure:
        pool.apply(case.spec)
    assert case.message in str(failure.value)
    assert not pool.kubectl.exists("tokenpool", "refused")
    pool.apply()
    pool.wait_ready(shards=1)


class Condition(NamedTuple):
    """A spec that is well-formed but cannot work, the undoing patch, and what the pool must say."""

    spec: dict[str, Any]
    undo: dict[str, Any]
    reason: str
    words: str


CANNOT_WORK = {
    "model does not exist": Condition(
        {"model": {"source": "pvc://smollm2/no-such-model"}},
        {"model": {"source": "pvc://smollm2/SmolLM2-135M-Instruct"}},
        "ModelNotFound",
        "no-such-model",
    ),
    "node selector matches nothing": Condition(
        {"shards": {"nodeSelector": {"disk": "no-such-disk"}}},
        {"shards": {"nodeSelector": None}},
        "Unschedulable",
        "node",
    ),
}


@pytest.mark.parametrize("case", CANNOT_WORK.values(), ids=list(CANNOT_WORK))
def test_from_the_start_and_healed_by_the_good_spec(case: Condition, make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("wrong")
    pool.apply(case.spec)
    degraded = pool.wait_condition("Degraded", "True", reason=case.reason, seconds=90)
    assert case.words in degraded["message"]
    assert pool.condition("Ready")["status"] == "False"

    pool.patch(case.undo)
    healed = pool.wait_ready(shards=1)
    assert {c["type"]: c["status"] for c in healed["status"]["conditions"]}["Degraded"] == "False"


@pytest.mark.parametrize("case", CANNOT_WORK.values(), ids=list(CANNOT_WORK))
def test_a_wrong_edit_leaves_the_running_shard_alone(case: Condition, make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("edited")
    pool.apply()
    pool.wait_ready(shards=1)
    before = pool.shards()[0]["metadata"]["uid"]

    pool.patch(case.spec)
    pool.wait_condition("Degraded", "True", reason=case.reason, seconds=90)
    assert pool.condition("Available")["status"] == "True"
    assert before in [pod["metadata"]["uid"] for pod in pool.shards()]
    answer = pool.client().chat.completions.create(
        model="smollm2-135m-instruct", messages=[{"role": "user", "content": "Hello"}], max_tokens=4
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0

    pool.patch(case.undo)
    pool.wait_ready(shards=1)
    assert [pod["metadata"]["uid"] for pod in pool.shards()] == [before], "reverting keeps the shard that served"
