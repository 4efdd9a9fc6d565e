"""A bfloat16 shard on CPUs computes with the kernel compiled into its image, says so, and answers sensibly."""

from collections.abc import Callable

import pytest

from stack.pool import Pool
from tokenpool_engine.compute.native import NEEDED

QUESTION = "What is the capital of France?"


def cpu_flags(pool: Pool, shard: str) -> frozenset[str]:
    """What the CPU under a shard says that it can do; not asked of the engine, whose own reading is under test."""
    lines = pool.kubectl.run("exec", shard, "--", "cat", "/proc/cpuinfo").splitlines()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def test_bfloat16_goes_through_the_compiled_kernel(make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("kernel")
    pool.apply({"shards": {"dtype": "bfloat16"}})
    pool.wait_ready(shards=1)
    [shard] = pool.shards()
    name = shard["metadata"]["name"]

    # Other arithmetic than the reference's: only an answer that no rounding can turn is compared.
    answer = pool.client().chat.completions.create(
        model="smollm2-135m-instruct",
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=16,
        temperature=0,
    )
    assert "Paris" in (answer.choices[0].message.content or "")

    lacking = NEEDED - cpu_flags(pool, name)
    if lacking:
        pytest.skip(f"the CPU under {name} lacks {', '.join(sorted(lacking))}: the compiled kernel was not tested")
    assert "computing with the compiled kernel" in pool.kubectl.run("logs", name)
