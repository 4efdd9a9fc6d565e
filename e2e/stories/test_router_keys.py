"""A pool that asks for API keys: the Secret decides who comes in, and a change of it needs no restart."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from stack.kubectl import wait_until
from stack.pool import Pool

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi."}]


def secret(name: str, **callers: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": callers}


def caller(key: str, **limits: int) -> str:
    return json.dumps({"sha256": [sha256(key.encode()).hexdigest()], **limits})


def test_only_who_is_in_the_secret_is_served_and_changes_take_effect_live(make_pool: Callable[[str], Pool]) -> None:
    pool = make_pool("keys")
    pool.apply({"router": {"apiKeysSecret": {"name": "callers"}}})
    wait_until(
        lambda: pool.condition("Ready"),
        lambda ready: ready.get("status") == "False" and 'secret "callers" not found' in ready["message"],
        120,
        "the condition names the Secret that is missing",
    )
    pool.kubectl.apply(secret("callers", team=caller("one"), tight=caller("two", tokensPerMinute=10)))
    pool.wait_ready(shards=1)

    def ask(key: str) -> str | None:
        client = pool.client().with_options(api_key=key, max_retries=0)
        answer = client.chat.completions.create(model="smollm2-135m-instruct", messages=QUESTION, max_tokens=4)
        return answer.choices[0].finish_reason

    assert ask("one") in ("length", "stop")
    with pytest.raises(openai.AuthenticationError, match="not known to this pool"):
        ask("nobody")
    assert ask("two") in ("length", "stop")
    with pytest.raises(openai.RateLimitError, match="10 tokens per minute") as refused:
        ask("two")
    assert 0 < int(refused.value.response.headers["retry-after"]) <= 180

    pool.kubectl.apply(secret("callers", team=caller("new")))

    def works() -> bool:
        try:
            return ask("new") is not None
        except openai.AuthenticationError:
            return False

    wait_until(works, bool, 150, "the new key works; the kubelet takes its time to bring a changed Secret")
    with pytest.raises(openai.AuthenticationError):
        ask("one")
