"""A user applies a pool, sees it become Ready, and gets from it exactly what the model says."""

from collections.abc import Callable
from pathlib import Path

from openai.types.chat import ChatCompletionMessageParam

from stack import reference
from stack.pool import Pool

QUESTION = "What is the capital of France?"


def test_apply_ready_answer_equals_generate(make_pool: Callable[[str], Pool], model_directory: Path) -> None:
    pool = make_pool("smollm2")
    pool.apply()
    seen = pool.wait_ready(shards=1)

    assert seen["status"]["shards"] == {
        "desired": 1,
        "current": 1,
        "ready": 1,
        "pending": 0,
        "draining": 0,
        "updated": 1,
    }
    assert {c["type"]: c["status"] for c in seen["status"]["conditions"]} == {
        "Ready": "True",
        "Available": "True",
        "Progressing": "False",
        "Degraded": "False",
        "ScalingActive": "False",
    }
    client = pool.client()
    assert [model.id for model in client.models.list()] == ["smollm2-135m-instruct"]

    wanted = reference.generate(model_directory, QUESTION, 32)
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]
    whole = client.chat.completions.create(
        model="smollm2-135m-instruct", messages=messages, max_tokens=32, temperature=0
    )
    assert whole.choices[0].message.content == wanted
    assert whole.usage is not None
    assert whole.usage.completion_tokens + whole.usage.prompt_tokens == whole.usage.total_tokens

    chunks = list(
        client.chat.completions.create(
            model="smollm2-135m-instruct",
            messages=messages,
            max_tokens=32,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == wanted
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage


def test_kubectl_tells_the_truth_in_one_line(make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("table")
    pool.apply()
    pool.wait_ready(shards=1)
    header, row = pool.kubectl.run("get", "tp", "table").strip().splitlines()
    assert header.split() == ["NAME", "READY", "SHARDS", "UTILIZATION", "MODEL", "REVISION", "AGE"]
    assert row.split()[:3] == ["table", "True", "1/1"]
    assert "condition met" in pool.kubectl.run("wait", "--for=condition=Ready", "tokenpool/table", "--timeout=10s")
