"""Which field asks for which schema, and refusals that name it."""

import json
from typing import Any

import pytest

from tokenpool_engine.api.errors import ApiError
from tokenpool_engine.api.openai import ChatRequest, parse
from tokenpool_engine.api.structured import read_grammar, wanted_schema
from tokenpool_engine.grammar import SchemaError, TooManySchemas

SCHEMA = {"type": "object", "required": ["b", "a"]}
TEXT = '{"type":"object","required":["b","a"]}'


def body(**fields: Any) -> ChatRequest:
    whole = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return parse(ChatRequest, json.dumps(whole).encode())


def named(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"structured_outputs": {}}, None),
        ({"response_format": {"type": "json_object"}}, ("response_format", '{"type":"object"}')),
        ({"response_format": named(SCHEMA)}, ("response_format", TEXT)),
        ({"guided_json": SCHEMA}, ("guided_json", TEXT)),
        ({"guided_json": TEXT}, ("guided_json", TEXT)),
        ({"structured_outputs": {"json": SCHEMA}}, ("structured_outputs", TEXT)),
        ({"structured_outputs": {"json": SCHEMA}, "response_format": {"type": "text"}}, ("structured_outputs", TEXT)),
    ],
)
def test_the_schema_and_its_field(fields: dict[str, Any], wanted: tuple[str, str] | None) -> None:
    assert wanted_schema(body(**fields)) == wanted


class Compiler:
    """A fake: raises what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def compile(self, schema: str) -> str:
        if self.error:
            raise self.error
        return f"grammar of {schema}"


@pytest.mark.parametrize(
    ("fields", "error", "status", "param", "words"),
    [
        ({"response_format": {"type": "json_schema"}}, None, 400, "response_format", "json_schema is missing"),
        ({"response_format": named({"a": "x" * 40_000})}, None, 400, "response_format", "larger than 32768 bytes"),
        ({"response_format": named({})}, SchemaError("no such type"), 400, "response_format", "no such type"),
        ({"guided_json": {}}, SchemaError("no such type"), 400, "guided_json", "no such type"),
        ({"guided_json": {}}, TooManySchemas(), 429, "guided_json", "too many schemas"),
        (
            {"response_format": {"type": "json_object"}, "guided_json": {}},
            None,
            400,
            "guided_json",
            "response_format asks for a structure already",
        ),
    ],
)
async def test_refusals_name_the_field(
    fields: dict[str, Any], error: Exception | None, status: int, param: str, words: str
) -> None:
    compiler: Any = Compiler(error)
    with pytest.raises(ApiError, match=words) as refused:
        await read_grammar(body(**fields), compiler)
    assert (refused.value.status, refused.value.param) == (status, param)
    assert refused.value.retry_after == (2 if status == 429 else 0)


async def test_a_schema_that_compiles_is_the_grammar() -> None:
    compiler: Any = Compiler()
    assert await read_grammar(body(guided_json=SCHEMA), compiler) == f"grammar of {TEXT}"
    assert await read_grammar(body(), compiler) is None
