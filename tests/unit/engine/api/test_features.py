"""What a request may ask for, over HTTP and a tiny random model: choices, log probabilities, ids, continuation."""

import asyncio
import json
import re
from typing import Any

import pytest

from support.shard import Running

GREEDY: dict[str, Any] = {"prompt": "abc", "temperature": 0, "ignore_eos": True, "max_tokens": 12}
DRAWN: dict[str, Any] = {**GREEDY, "temperature": 1, "seed": 7}


async def complete(running: Running, **body: Any) -> dict[str, Any]:
    status, answer = await running.post("/v1/completions", **body)
    assert status == 200, answer
    return answer


def chunks(events: list[str]) -> list[dict[str, Any]]:
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def texts(events: list[str], name: str = "text") -> dict[int, str]:
    found: dict[int, str] = {}
    for chunk in chunks(events):
        for choice in chunk["choices"]:
            content = choice[name] if name == "text" else choice[name].get("content") or ""
            found[choice["index"]] = found.get(choice["index"], "") + content
    return found


async def test_n_choices_are_different_and_streamed_they_are_the_same(running: Running) -> None:
    answer = await complete(running, **DRAWN, n=3)
    whole = {choice["index"]: choice["text"] for choice in answer["choices"]}
    assert len(set(whole.values())) == 3
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 36, "total_tokens": 39}
    events = await running.stream(**DRAWN, n=3, stream_options={"include_usage": True})
    assert texts(events) == whole
    ends = [choice for chunk in chunks(events) for choice in chunk["choices"] if choice["finish_reason"]]
    assert sorted(choice["index"] for choice in ends) == [0, 1, 2]
    assert chunks(events)[-1]["usage"] == answer["usage"]
    assert (await complete(running, **DRAWN))["choices"][0]["text"] == whole[0]


async def test_several_prompts_are_answered_as_if_alone(running: Running) -> None:
    body = {**GREEDY, "prompt": ["abc", "xyz, and more"]}
    both = (await complete(running, **body))["choices"]
    alone = [(await complete(running, **{**GREEDY, "prompt": prompt}))["choices"][0] for prompt in body["prompt"]]
    assert [choice["text"] for choice in both] == [choice["text"] for choice in alone]


async def test_a_chats_role_comes_with_its_first_token(running: Running) -> None:
    gate, inner = asyncio.Event(), running.parts.engine._runner.run
    loop = asyncio.get_running_loop()

    def run(step: Any) -> Any:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(10)
        return inner(step)

    running.parts.engine._runner.run = run  # type: ignore[method-assign]
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    request = running.http.post(f"{running.url}/v1/chat/completions", json={"model": "tiny", "stream": True, **body})
    answer = asyncio.ensure_future(request)
    while not running.api.open_streams:
        await asyncio.sleep(0.005)
    done, _ = await asyncio.wait([answer], timeout=0.05)
    assert not done, "not even a head before there is a token: another shard could still answer"
    gate.set()
    async with await answer as response:
        events = [event.removeprefix("data: ") for event in (await response.text()).split("\n\n") if event]
    assert chunks(events)[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert texts(events, "delta")[0]


async def test_log_probabilities_of_a_completion(running: Running) -> None:
    [choice] = (await complete(running, **GREEDY, logprobs=3))["choices"]
    found = choice["logprobs"]
    assert [len(found[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [12] * 4
    assert all(
        max(top.values()) == chance for top, chance in zip(found["top_logprobs"], found["token_logprobs"], strict=True)
    )
    assert all(chance < 0 for chance in found["token_logprobs"])
    assert found["text_offset"][:2] == [0, len(found["tokens"][0])]
    streamed = [chunk["choices"][0] for chunk in chunks(await running.stream(**GREEDY, logprobs=3))]
    pieces = [choice["logprobs"] for choice in streamed if choice["logprobs"]]
    for key in found:
        assert [one for piece in pieces for one in piece[key]] == found[key]


async def test_log_probabilities_of_a_chat(running: Running) -> None:
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "max_tokens": 5, "temperature": 0, "ignore_eos": True, "logprobs": True}
    status, answer = await running.post("/v1/chat/completions", **body, top_logprobs=2)
    assert status == 200
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    for entry in content:
        assert entry["bytes"] == list(entry["token"].encode())
        assert len(entry["top_logprobs"]) == 2
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]
    _, answer = await running.post("/v1/chat/completions", **body)
    assert [entry["top_logprobs"] for entry in answer["choices"][0]["logprobs"]["content"]] == [[]] * 5


async def test_token_ids_come_with_every_chunk_when_asked_for(running: Running) -> None:
    [choice] = (await complete(running, **GREEDY, return_token_ids=True))["choices"]
    assert choice["prompt_token_ids"] == running.parts.tokenizer("abc")["input_ids"]
    assert len(choice["token_ids"]) == 12
    streamed = [chunk["choices"][0] for chunk in chunks(await running.stream(**GREEDY, return_token_ids=True))]
    assert [token for piece in streamed for token in piece.get("token_ids", [])] == choice["token_ids"]
    assert streamed[0]["prompt_token_ids"] == choice["prompt_token_ids"]
    assert "token_ids" not in (await complete(running, **GREEDY))["choices"][0]


async def test_a_router_gets_token_ids_as_comments_and_what_the_shard_counted(running: Running) -> None:
    [choice] = (await complete(running, **DRAWN, return_token_ids=True))["choices"]
    url, asks = f"{running.url}/v1/completions", {"x-tokenpool-token-ids": "1"}
    body = {"model": "tiny", **DRAWN, "stream": True}
    async with running.http.post(url, json=body, headers=asks) as answer:
        text, told = await answer.text(), answer.headers
    assert (told["x-tokenpool-prompt-tokens"], told["x-tokenpool-seed"]) == ("3", "7")
    comments = re.findall(r"^:([0-9,]+)\n", text, re.MULTILINE)
    assert [int(token) for comment in comments for token in comment.split(",")] == choice["token_ids"]
    rest = [event.removeprefix("data: ") for event in re.sub(r"(?m)^:.*\n", "", text).split("\n\n") if event]
    assert texts(rest)[0] == choice["text"]
    assert "token_ids" not in text
    async with running.http.post(url, json={**body, "stream": False}, headers=asks) as answer:
        told = answer.headers
    assert (told["x-tokenpool-prompt-tokens"], told["x-tokenpool-completion-tokens"]) == ("3", "12")


async def test_a_continued_chat_has_no_second_opening_and_keeps_its_id(running: Running) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0}
    whole = {**body, "stream": True, "ignore_eos": True, "return_token_ids": True}
    found = []
    for more in ({}, {"continue_token_ids": [97, 98]}):
        headers = {"x-request-id": "abc-1"}
        url = f"{running.url}/v1/chat/completions"
        async with running.http.post(url, json={**whole, **more}, headers=headers) as answer:
            events = [event.removeprefix("data: ") for event in (await answer.text()).split("\n\n") if event]
        assert {chunk["id"] for chunk in chunks(events)} == {"chatcmpl-abc-1"}
        found.append(["role" in chunk["choices"][0]["delta"] for chunk in chunks(events)])
    # How many chunks there are is a matter of time.
    assert [(roles[0], any(roles[1:])) for roles in found] == [(True, False), (False, False)]


@pytest.mark.parametrize("given", ["a b", "x" * 65, 'q"uote'])
async def test_ids_that_are_not_plain_stay_out_of_the_body(running: Running, given: str) -> None:
    body = {"model": "tiny", **GREEDY}
    async with running.http.post(f"{running.url}/v1/completions", json=body, headers={"x-request-id": given}) as answer:
        assert given not in (await answer.json())["id"]


@pytest.mark.parametrize("extra", [{}, {"presence_penalty": 1.5, "frequency_penalty": 0.5}, {"min_tokens": 9}])
@pytest.mark.parametrize("cut", [1, 5, 11, 12])
async def test_an_answer_goes_on_where_it_was_lost(running: Running, extra: dict[str, Any], cut: int) -> None:
    body = {**DRAWN, **extra, "return_token_ids": True}
    pieces = [chunk["choices"][0] for chunk in chunks(await running.stream(**body))]
    ids = [token for piece in pieces for token in piece.get("token_ids", [])]
    before, seen = "", 0
    for piece in pieces:
        if seen >= cut:
            break
        before += piece["text"]
        seen += len(piece.get("token_ids", []))
    rest = await running.stream(**body, continue_token_ids=ids[:seen], stream_options={"include_usage": True})
    assert before + texts(rest)[0] == "".join(piece["text"] for piece in pieces)
    assert [token for chunk in chunks(rest) for c in chunk["choices"] for token in c.get("token_ids", [])] == ids[seen:]
    assert chunks(rest)[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 12 - seen, "total_tokens": 15 - seen}
    assert chunks(rest)[-2]["choices"][0]["finish_reason"] == "length"


async def test_stop_token_ids_and_min_tokens(running: Running) -> None:
    [plain] = (await complete(running, **GREEDY, return_token_ids=True))["choices"]
    stop = plain["token_ids"][4]
    first = plain["token_ids"].index(stop)
    [stopped] = (await complete(running, **GREEDY, stop_token_ids=[stop], return_token_ids=True))["choices"]
    assert (stopped["token_ids"], stopped["finish_reason"]) == (plain["token_ids"][:first], "stop")
    [late] = (await complete(running, **GREEDY, stop_token_ids=[stop], min_tokens=12, return_token_ids=True))["choices"]
    assert (len(late["token_ids"]), late["finish_reason"]) == (12, "length")


async def test_echo_gives_the_prompt_first(running: Running) -> None:
    [plain] = (await complete(running, **GREEDY))["choices"]
    [echoed] = (await complete(running, **GREEDY, echo=True))["choices"]
    assert echoed["text"] == "abc" + plain["text"]
    assert texts(await running.stream(**GREEDY, echo=True))[0] == echoed["text"]


SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "wild": {"type": "boolean"}},
    "required": ["kind", "wild"],
    "additionalProperties": False,
}


async def test_structured_output_beside_a_stream(running: Running) -> None:
    control = asyncio.create_task(running.stream(**{**GREEDY, "max_tokens": 60}))
    form = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA}}
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "response_format": form, "seed": 1}
    status, answer = await running.post("/v1/chat/completions", **body, n=3)
    assert status == 200
    for choice in answer["choices"]:
        found = json.loads(choice["message"]["content"])
        assert found["kind"] in ("cat", "dog")
        assert isinstance(found["wild"], bool)
        assert choice["finish_reason"] == "stop"
    bad = {"type": "json_schema", "json_schema": {"name": "bad", "schema": {"type": "nonsense"}}}
    status, answer = await running.post("/v1/chat/completions", **{**body, "response_format": bad})
    assert (status, answer["error"]["param"]) == (400, "response_format")
    assert "Invalid type: nonsense" in answer["error"]["message"]
    assert texts(await control)[0] == (await complete(running, **{**GREEDY, "max_tokens": 60}))["choices"][0]["text"]


async def test_the_queues_bound_counts_every_choice(running: Running) -> None:
    long = [asyncio.create_task(running.stream(prompt="abc", max_tokens=480)) for _ in range(4)]
    while running.parts.engine.outstanding_tokens() < 1600:
        await asyncio.sleep(0.005)
    body = {"model": "tiny", "prompt": "abc", "max_tokens": 400}
    async with running.http.post(f"{running.url}/v1/completions", json={**body, "n": 8}) as answer:
        assert (answer.status, 1 <= int(answer.headers["Retry-After"]) <= 60) == (429, True)
    status, _ = await running.post("/v1/completions", **{**body, "max_tokens": 4}, n=2)
    assert status == 200
    for task in long:
        task.cancel()
    await asyncio.gather(*long, return_exceptions=True)


async def test_tokenize_and_back(running: Running) -> None:
    status, found = await running.post("/tokenize", prompt="aé", return_token_strs=True)
    ids = running.parts.tokenizer("aé")["input_ids"]
    assert (status, found["tokens"], found["count"], found["max_model_len"]) == (200, ids, 3, 512)
    assert len(found["token_strs"]) == 3
    assert await running.post("/detokenize", tokens=ids) == (200, {"prompt": "aé"})
    _, chat = await running.post("/tokenize", messages=[{"role": "user", "content": "hi"}])
    assert await running.post("/detokenize", tokens=chat["tokens"]) == (200, {"prompt": "<user>hi<assistant>"})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "hi"}]}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [257]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
    ],
)
async def test_wrong_bodies_of_those(running: Running, path: str, body: dict[str, Any], param: str) -> None:
    status, found = await running.post(path, **body)
    assert (status, found["error"]["param"]) == (400, param)


async def test_one_model_by_its_name(running: Running) -> None:
    async with running.http.get(f"{running.url}/v1/models/tiny") as answer:
        assert (answer.status, (await answer.json())["id"]) == (200, "tiny")
    async with running.http.get(f"{running.url}/v1/models/other") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (404, "model_not_found")
