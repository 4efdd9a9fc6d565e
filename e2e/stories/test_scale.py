"""The number of shards follows `kubectl scale` and edits of min and max, up and down."""

from collections.abc import Callable

import pytest

from stack.kubectl import CommandFailed, wait_until
from stack.pool import Pool


def test_kubectl_scale_and_edits_of_min_and_max(make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("scale")
    pool.apply({"shards": {"min": 1, "max": 3}})
    pool.wait_ready(shards=1)
    first = pool.shards()[0]["metadata"]["uid"]

    pool.kubectl.run("scale", "tokenpool/scale", "--replicas=2")
    pool.wait_ready(shards=2)
    assert pool.read()["spec"]["shards"]["min"] == 2
    assert pool.shards()[0]["metadata"]["uid"] == first

    with pytest.raises(CommandFailed, match=r"shards\.min must not be greater than shards\.max"):
        pool.kubectl.run("scale", "tokenpool/scale", "--replicas=4")
    assert len(pool.shards()) == 2

    pool.patch({"shards": {"min": 3}})
    pool.wait_ready(shards=3)
    pool.patch({"shards": {"min": 1, "max": 1}})
    wait_until(pool.shards, lambda pods: len(pods) == 1, 60, "two shards leave")
    pool.wait_ready(shards=1)
    assert pool.shards()[0]["metadata"]["uid"] == first, "the first shard was never restarted"
    answer = pool.client().chat.completions.create(
        model="smollm2-135m-instruct", messages=[{"role": "user", "content": "Hello"}], max_tokens=4
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
