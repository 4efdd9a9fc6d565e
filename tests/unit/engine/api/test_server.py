"""The whole shard over HTTP on loopback, with a tiny random model and the real client."""

import asyncio
import io
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import aiohttp
import openai
import pytest

from support.shard import Running, port_of
from tokenpool_engine import admin
from tokenpool_engine.api import admission, server
from tokenpool_engine.api.server import Api
from tokenpool_engine.process import drain, listen
from tokenpool_engine.shard import Shard


async def test_the_real_client_streams_and_does_not(running: Running) -> None:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        question: Any = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "temperature": 0,
            "max_tokens": 12,
        }
        whole = await client.chat.completions.create(**question)
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                **question, stream=True, stream_options={"include_usage": True}
            )
        ]
        assert (
            "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
        )
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
        assert chunks[-1].usage == whole.usage
        assert whole.usage
        assert whole.usage.prompt_tokens == len("<user>hi<assistant>")
        completion = await client.completions.create(model="tiny", prompt=[97, 98], max_tokens=3, temperature=0)
        assert completion.usage
        assert completion.usage.prompt_tokens == 2
        with pytest.raises(openai.NotFoundError, match="the model 'other' does not exist; this pool serves 'tiny'"):
            await client.chat.completions.create(**{**question, "model": "other"})


async def test_batched_answers_are_the_single_ones(running: Running) -> None:
    prompts = ["a", "some longer prompt " * 6, "xyz" * 10]
    body: dict[str, Any] = {"max_tokens": 20, "temperature": 0, "ignore_eos": True}
    alone = [(await running.post("/v1/completions", prompt=prompt, **body))[1]["choices"] for prompt in prompts]
    together = await asyncio.gather(*(running.post("/v1/completions", prompt=prompt, **body) for prompt in prompts))
    assert [answer["choices"] for _, answer in together] == alone


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/chat/completions", b"{nope", 400, "invalid_json"),
        ("POST", "/v1/completions", b'{"model": "tiny", "prompt": "x", "n": 99}', 400, "invalid_value"),
        ("POST", "/v1/completions", b'{"model": "tiny", "prompt": ""}', 400, "invalid_value"),
        ("POST", "/v1/completions", b'{"model": "tiny", "prompt": [999]}', 400, "invalid_request"),
        (
            "POST",
            "/v1/completions",
            json.dumps({"model": "tiny", "prompt": "x" * 999}).encode(),
            400,
            "context_length_exceeded",
        ),
        ("POST", "/v1/completions", b'{"model": "other", "prompt": "x"}', 404, "model_not_found"),
        ("POST", "/v1/completions", b" " * (9 << 20), 413, "body_too_large"),
        ("GET", "/v1/chat/completions", b"", 405, "not_found"),
        ("GET", "/nowhere", b"", 404, "not_found"),
    ],
)
async def test_refusals_in_openais_form_while_a_stream_goes_on(
    running: Running, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    control = asyncio.create_task(running.stream(max_tokens=40))
    async with running.http.request(method, running.url + path, data=io.BytesIO(body)) as answer:
        assert answer.status == status
        error = (await answer.json())["error"]
    assert error["code"] == code
    assert error.keys() == {"message", "type", "param", "code"}
    assert (await control)[-1] == "[DONE]"


async def test_too_much_outstanding_work_is_429_with_a_computed_wait(running: Running) -> None:
    long = [asyncio.create_task(running.stream(max_tokens=480)) for _ in range(9)]
    while running.parts.engine.outstanding_tokens() < 3700:
        await asyncio.sleep(0.005)
    body = {"model": "tiny", "prompt": "x" * 30, "max_tokens": 480}
    async with running.http.post(f"{running.url}/v1/completions", json=body) as answer:
        assert answer.status == 429
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
    for task in long:
        task.cancel()
    await asyncio.gather(*long, return_exceptions=True)


async def test_a_client_that_leaves_frees_its_place(running: Running) -> None:
    response = await running.http.post(
        f"{running.url}/v1/completions",
        json={"model": "tiny", "prompt": "x", "max_tokens": 480, "stream": True, "ignore_eos": True},
    )
    await response.content.readany()
    assert running.parts.metrics.load(ready=True, draining=False).kv_tokens_reserved > 0
    response.close()
    async with asyncio.timeout(5):
        while running.parts.metrics.load(ready=True, draining=False).kv_tokens_reserved:
            await asyncio.sleep(0.005)


async def test_a_stop_string_ends_the_answer_and_frees_its_place(running: Running) -> None:
    body: dict[str, Any] = {"prompt": "abc", "temperature": 0, "ignore_eos": True}
    _, whole = await running.post("/v1/completions", **body, max_tokens=30)
    text = whole["choices"][0]["text"]
    stop = text[5:7]
    status, answer = await running.post("/v1/completions", **body, max_tokens=480, stop=stop)
    choice = answer["choices"][0]
    assert (status, choice["text"], choice["finish_reason"]) == (200, text[: text.index(stop)], "stop")
    async with asyncio.timeout(5):
        while running.parts.metrics.load(ready=True, draining=False).kv_tokens_reserved:
            await asyncio.sleep(0.005)
    assert running.parts.metrics.load(ready=True, draining=False).generated_tokens_total < 60
    _, metrics = await running.admin("/metrics")
    assert 'tokenpool_shard_requests_total{finish="stop"} 1.0' in metrics


async def test_admin_port(running: Running) -> None:
    assert await running.admin("/healthz") == (200, "ok\n")
    assert await running.admin("/readyz") == (200, "ok\n")
    await running.post("/v1/completions", prompt="abc", max_tokens=4, temperature=0, ignore_eos=True)
    _, load = await running.admin("/load")
    assert json.loads(load)["generatedTokensTotal"] == 4
    _, metrics = await running.admin("/metrics")
    assert 'vllm:generation_tokens_total{model_name="tiny"} 4.0' in metrics
    assert 'tokenpool_shard_requests_total{finish="length"} 1.0' in metrics


async def test_drain_lets_running_streams_end_and_refuses_new_ones(running: Running) -> None:
    stream = asyncio.create_task(running.stream(max_tokens=60))
    while not running.api.open_streams:
        await asyncio.sleep(0.005)
    draining = asyncio.create_task(drain(20, running.shard, running.parts, running.api))
    await asyncio.sleep(0)
    assert (await running.admin("/readyz"))[0] == 503
    assert (await running.admin("/healthz"))[0] == 200
    status, body = await running.post("/v1/completions", prompt="x")
    assert (status, body["error"]["code"]) == (503, "shard_not_ready")
    assert (await stream)[-1] == "[DONE]"
    await draining


async def test_what_outlives_the_drain_ends_in_an_error_event(running: Running) -> None:
    stream = asyncio.create_task(running.stream(max_tokens=490))
    while not running.api.open_streams:
        await asyncio.sleep(0.005)
    await drain(0.01, running.shard, running.parts, running.api)
    last = json.loads((await stream)[-1])
    assert last["error"]["message"] == "the shard's drain time is over"


async def test_a_shard_that_still_loads_is_healthy_but_takes_nothing() -> None:
    shard = Shard("tiny", stage="loading weights")
    runners = [await listen(app, "127.0.0.1", 0) for app in (Api(shard).application(), admin.application(shard))]
    urls = [f"http://127.0.0.1:{port_of(runner)}" for runner in runners]
    async with aiohttp.ClientSession() as http:
        for path, status, text in (("/healthz", 200, "ok\n"), ("/readyz", 503, "loading weights\n")):
            async with http.get(urls[1] + path) as answer:
                assert (answer.status, await answer.text()) == (status, text)
        async with http.get(urls[1] + "/load") as answer:
            load = await answer.json()
        async with http.get(urls[1] + "/metrics") as answer:
            assert answer.status == 200
        body = {"model": "tiny", "prompt": "x"}
        async with http.post(f"{urls[0]}/v1/completions", json=body) as answer:
            refusal = answer
            assert (await answer.json())["error"]["message"] == "this shard takes no requests: loading weights"
    assert (load["ready"], load["kvTokensCapacity"]) == (False, 0)
    assert (refusal.status, refusal.headers["Retry-After"], refusal.headers["Connection"]) == (503, "1", "close")
    for runner in runners:
        await runner.cleanup()


async def test_a_drain_that_begins_while_a_prompt_is_read_refuses_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def admit_slowly(*arguments: Any) -> Any:
        running.shard.draining = True
        return admission.admit(*arguments)

    monkeypatch.setattr(server, "admit", admit_slowly)
    status, body = await running.post("/v1/completions", prompt="x", max_tokens=4)
    assert (status, body["error"]["code"]) == (503, "shard_not_ready")
    assert not running.api.open_streams


async def test_what_is_not_streamed_and_outlives_the_drain_is_an_error_too(running: Running) -> None:
    body: dict[str, Any] = {"prompt": "abc", "max_tokens": 490, "ignore_eos": True}
    answer = asyncio.create_task(running.post("/v1/completions", **body))
    while not running.api.open_streams:
        await asyncio.sleep(0.005)
    await drain(0.01, running.shard, running.parts, running.api)
    status, error = await answer
    assert (status, error["error"]["code"]) == (500, "generation_failed")
    assert error["error"]["message"] == "the shard's drain time is over"


async def test_a_step_that_fails_in_a_stream_ends_it_with_an_error_event(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> None:
        raise RuntimeError("device fault")

    monkeypatch.setattr(running.parts.engine._runner, "run", fail)
    events = await running.stream(max_tokens=5)
    assert json.loads(events[-1])["error"]["message"] == "the shard could not compute this request: RuntimeError"
    assert "[DONE]" not in events
    monkeypatch.undo()
    assert (await running.stream(max_tokens=5))[-1] == "[DONE]"


async def test_a_usage_chunk_comes_last_and_only_when_asked_for(running: Running) -> None:
    events = await running.stream(max_tokens=5, stream_options={"include_usage": True})
    last = json.loads(events[-2])
    assert (last["choices"], last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == ([], 3, 5)
    assert all(json.loads(event)["usage"] is None for event in events[:-2])
    assert all("usage" not in json.loads(event) for event in (await running.stream(max_tokens=5))[:-1])


async def test_a_given_seed_gives_the_same_answer_again_also_beside_others(running: Running) -> None:
    body: dict[str, Any] = {"prompt": "seed", "max_tokens": 30, "seed": 7, "temperature": 1, "ignore_eos": True}
    [(_, alone)] = [await running.post("/v1/completions", **body)]
    same, other, _ = await asyncio.gather(
        running.post("/v1/completions", **body),
        running.post("/v1/completions", **{**body, "seed": 8}),
        running.stream(max_tokens=60),
    )
    assert same[1]["choices"] == alone["choices"]
    assert other[1]["choices"] != alone["choices"]


async def test_the_request_id_comes_back(running: Running) -> None:
    async with running.http.get(f"{running.url}/v1/models", headers={"x-request-id": "abc"}) as answer:
        assert answer.headers["x-request-id"] == "abc"
    async with running.http.get(f"{running.url}/nowhere") as answer:
        assert answer.headers["x-request-id"]


class BrokenTokenizer:
    """Encodes like the one it wraps; cannot decode more than some tokens."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, text: str, **options: Any) -> Any:
        return self._inner(text, **options)

    def decode(self, ids: list[int], **options: Any) -> str:
        if len(ids) > 1 or 10 in ids:
            raise IndexError("no such piece")
        return str(self._inner.decode(ids, **options))


async def test_a_bug_in_the_middle_of_an_answer_ends_it_explicitly(running: Running) -> None:
    running.shard.parts = replace(running.parts, tokenizer=BrokenTokenizer(running.parts.tokenizer))
    last = json.loads((await running.stream(max_tokens=30))[-1])
    assert last["error"]["message"] == "the answer's tokens could not be made text: IndexError"
    status, body = await running.post("/v1/completions", prompt="abc", max_tokens=30, ignore_eos=True)
    assert (status, body["error"]["code"]) == (500, "generation_failed")
    _, metrics = await running.admin("/metrics")
    assert 'tokenpool_shard_requests_total{finish="error"} 2.0' in metrics


async def test_a_bug_before_the_answer_has_openais_form(running: Running) -> None:
    running.shard.parts = replace(running.parts, tokenizer=None)
    status, body = await running.post("/v1/completions", prompt="abc")
    assert (status, body["error"]["type"], body["error"]["code"]) == (500, "server_error", "internal_error")


def test_the_admin_port_needs_no_torch() -> None:
    # Importing torch takes seconds, on a cold node many; probes are answered before.
    script = "import sys, tokenpool_engine.process; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
