"""The real OpenAI client before a pool that is full: it waits as long as it is told to, and then gets its answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from openai import AsyncOpenAI, RateLimitError

Router = Any
BODY = (
    b'{"id":"a","object":"text_completion","created":1,"model":"m",'
    b'"choices":[{"index":0,"text":"hi","finish_reason":"stop"}]}'
)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Slow:
    """A shard that takes its time for the first request, and none for the others."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.go_on = asyncio.Event()

    async def __call__(self, _request: bytes, writer: asyncio.StreamWriter) -> None:
        self.times.append(time.monotonic())
        if len(self.times) == 1:
            await self.go_on.wait()
        writer.write(ANSWER)


def client(router: Router, retries: int) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://127.0.0.1:{router.port}/v1", api_key="none", max_retries=retries)


async def ask(router: Router, retries: int) -> str:
    async with client(router, retries) as openai:
        answer = await openai.completions.create(model="m", prompt="p", max_tokens=8)
        return answer.choices[0].text


async def test_it_comes_back_when_it_was_told_to(router_with: Callable[..., Awaitable[Router]]) -> None:
    # One request on the shard, none in the queue: the second one is sent away at once.
    router = await router_with("--queue-tokens", "1")
    shard = Slow()
    [fake] = await router.add(shard)
    [only] = router.desk.sharding.loads(now=0)
    router.desk.set_shards([replace(only.shard, max_requests=1)])
    first = asyncio.create_task(ask(router, 0))
    while not fake.requests:
        await asyncio.sleep(0.01)
    with pytest.raises(RateLimitError) as refused:
        await ask(router, 0)
    wait = int(refused.value.response.headers["retry-after-ms"]) / 1000
    assert wait >= 1
    sent_away = time.monotonic()
    second = asyncio.create_task(ask(router, 3))
    await asyncio.sleep(0.2)
    shard.go_on.set()
    assert await first == await second == "hi"
    assert shard.times[1] - sent_away >= 1, "the client's own first wait would be half a second"
