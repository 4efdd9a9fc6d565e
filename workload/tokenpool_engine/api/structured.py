"""Which schema is the answer to follow? Reads the fields that ask for structured output; compiling is elsewhere."""

import json
from typing import Any

from tokenpool_engine.api.errors import ApiError
from tokenpool_engine.api.openai import ChatRequest, CompletionRequest
from tokenpool_engine.grammar import ANY_OBJECT, SCHEMA_BYTES, Grammar, Grammars, SchemaError, TooManySchemas


def wanted_schema(body: ChatRequest | CompletionRequest) -> tuple[str, str] | None:
    """The field and the schema's text; None when the answer is free. Raises ApiError."""
    form, found = body.response_format, []
    if form and form.type == "json_object":
        found.append(("response_format", ANY_OBJECT))
    if form and form.type == "json_schema":
        if form.json_schema is None:
            raise refuse("response_format", "json_schema is missing")
        found.append(("response_format", _text(form.json_schema.schema_)))
    if body.guided_json is not None:
        found.append(("guided_json", _text(body.guided_json)))
    if body.structured_outputs and body.structured_outputs.json_ is not None:
        found.append(("structured_outputs", _text(body.structured_outputs.json_)))
    if len(found) > 1:
        raise refuse(found[1][0], f"{found[0][0]} asks for a structure already")
    return found[0] if found else None


async def read_grammar(body: ChatRequest | CompletionRequest, grammars: Grammars) -> Grammar | None:
    """The grammar that the answer is to follow. Raises ApiError that names the field."""
    wanted = wanted_schema(body)
    if wanted is None:
        return None
    field, schema = wanted
    if len(schema) > SCHEMA_BYTES:
        raise refuse(field, f"the schema is larger than {SCHEMA_BYTES} bytes")
    try:
        return await grammars.compile(schema)
    except SchemaError as error:
        raise refuse(field, f"the schema cannot be used: {error}") from error
    except TooManySchemas as error:
        text = "too many schemas wait to be compiled"
        raise ApiError(429, text, code="overloaded", param=field, retry_after=2) from error


def refuse(field: str, text: str) -> ApiError:
    """A 400 that names the field."""
    return ApiError(400, f"{field}: {text}", code="invalid_value", param=field)


def _text(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
