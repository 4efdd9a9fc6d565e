"""A refused body names the field as the client wrote it, not the kinds that the field may have."""

import json
from typing import Any

import pytest

from tokenpool_api import names
from tokenpool_engine.api.errors import ApiError
from tokenpool_engine.api.openai import Body, ChatRequest, CompletionRequest, parse

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"prompt": "x"}


def refusal(kind: type[Body], fields: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        parse(kind, json.dumps({"model": "m", **fields}).encode())
    return refused.value


@pytest.mark.parametrize("prompt", [5, [], ["a"] * 33, [[]], [-1], [[1], -1], [[1], "a"], ["a", 1], None, {}])
def test_a_prompt_of_no_known_kind(prompt: Any) -> None:
    error = refusal(CompletionRequest, {"prompt": prompt})
    assert (error.status, error.param) == (400, "prompt")
    assert error.message.startswith("prompt: ")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": 5}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": ["a" * 257]}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0"),
        ({"stop_token_ids": [1] * 65}, "stop_token_ids"),
        ({"logprobs": "x"}, "logprobs"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_p": 1.5}, "min_p"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"logit_bias": {str(one): 1 for one in range(1025)}}, "logit_bias"),
        ({"seed": 1 << 64}, "seed"),
        ({"continue_token_ids": [1.5]}, "continue_token_ids.0"),
        ({"return_token_ids": 1}, "return_token_ids"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        ({"guided_json": 5}, "guided_json"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
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


@pytest.mark.parametrize(
    ("kind", "fields", "wanted"),
    [
        (CompletionRequest, {}, None),
        (CompletionRequest, {"logprobs": False}, None),
        (CompletionRequest, {"logprobs": 0}, 0),
        (CompletionRequest, {"logprobs": 5}, 5),
        (ChatRequest, {"logprobs": False}, None),
        (ChatRequest, {"logprobs": True}, 0),
        (ChatRequest, {"logprobs": True, "top_logprobs": 20}, 20),
        (ChatRequest, {"top_logprobs": 0}, None),
    ],
)
def test_how_many_log_probabilities_are_wanted(kind: Any, fields: dict[str, Any], wanted: int | None) -> None:
    body = parse(kind, json.dumps({"model": "m", **TEXT, **CHAT, **fields}).encode())
    assert body.wanted_logprobs == wanted


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        (CompletionRequest, {"logprobs": True}, "logprobs"),
        (CompletionRequest, {"logprobs": 21}, "logprobs"),
        (ChatRequest, {"logprobs": 1}, "logprobs"),
        (ChatRequest, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_log_probabilities_of_the_other_endpoint_are_refused(kind: Any, fields: dict[str, Any], param: str) -> None:
    assert refusal(kind, {**TEXT, **CHAT, **fields}).param == param


def test_top_logprobs_without_logprobs_is_refused() -> None:
    body = parse(ChatRequest, json.dumps({"model": "m", **CHAT, "top_logprobs": 2}).encode())
    with pytest.raises(ApiError, match="needs logprobs") as refused:
        _ = body.wanted_logprobs
    assert refused.value.param == "top_logprobs"


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1, 2], [3]], [[1, 2], [3]])],
)
def test_one_prompt_or_several(prompt: Any, wanted: list[Any]) -> None:
    assert parse(CompletionRequest, json.dumps({"model": "m", "prompt": prompt}).encode()).prompts == wanted


def test_fields_that_the_router_adds_are_fields_here() -> None:
    for field in (names.FIELD_CONTINUE, names.FIELD_RETURN_TOKEN_IDS):
        assert field in ChatRequest.model_fields
        assert field in CompletionRequest.model_fields
