"""A refused body names the field as the client wrote it, not the kinds that the field may have."""

import json
from typing import Any

import pytest

from tokenpool_engine.api.openai import ApiError, Body, ChatRequest, CompletionRequest, parse

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"prompt": "x"}


def refusal(kind: type[Body], fields: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        parse(kind, json.dumps({"model": "m", **fields}).encode())
    return refused.value


@pytest.mark.parametrize("prompt", [5, [], ["a", "b"], [-1], ["a", 1], None, {}])
def test_a_prompt_of_no_known_kind(prompt: Any) -> None:
    error = refusal(CompletionRequest, {"prompt": prompt})
    assert (error.status, error.param) == (400, "prompt")
    assert error.message.startswith("prompt: ")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": 5}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": float("nan")}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"seed": 1.5}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": 5}, "stream_options"),
        ({"stream_options": {"include_usage": "x"}}, "stream_options.include_usage"),
    ],
)
def test_fields_of_both_endpoints(fields: dict[str, Any], param: str) -> None:
    assert refusal(CompletionRequest, {**TEXT, **fields}).param == param
    assert refusal(ChatRequest, {**CHAT, **fields}).param == param


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (5, "messages"),
        ([5], "messages.0"),
        ([{"role": "user", "content": 5}], "messages.0.content"),
        ([{"role": "", "content": "x"}], "messages.0.role"),
        ([*CHAT["messages"], {"role": "user", "content": [{"type": "image_url"}]}], "messages.1.content"),
    ],
)
def test_messages(messages: Any, param: str) -> None:
    assert refusal(ChatRequest, {"messages": messages}).param == param


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"5", b"null"])
def test_a_body_that_is_no_object_has_no_field_to_name(raw: bytes) -> None:
    with pytest.raises(ApiError, match=r"^the body: ") as refused:
        parse(ChatRequest, raw)
    assert (refused.value.status, refused.value.param) == (400, None)


@pytest.mark.parametrize(
    ("stop", "wanted"), [(None, ()), ("a", ("a",)), ("", ()), (["a", "", "b"], ("a", "b")), ([], ())]
)
def test_stop_strings_are_a_tuple_without_empty_ones(stop: Any, wanted: tuple[str, ...]) -> None:
    assert parse(CompletionRequest, json.dumps({"model": "m", **TEXT, "stop": stop}).encode()).stops == wanted


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error"), (503, "server_error")]
)
def test_the_envelope_has_openais_four_fields(status: int, kind: str) -> None:
    body = ApiError(status, "why", code="c", param="p").body()
    assert body == {"error": {"message": "why", "type": kind, "param": "p", "code": "c"}}
