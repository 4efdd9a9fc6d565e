"""OpenAI's request bodies, as far as the shard serves them. Unknown fields are tolerated, wrong ones named.

Everything has a bound: a body may be large, but no field of it may cost more than its own request.
"""

from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokenpool_engine.api.errors import ApiError

CHOICES_MAX: Final = 16
PROMPTS_MAX: Final = 32
LOGPROBS_MAX: Final = 20


class Body(BaseModel):
    """Base of request bodies: strict about types, tolerant about unknown names."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, protected_namespaces=())


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = None


class NamedSchema(Body):
    """A JSON schema and the name that the client gave it. Its alias is OpenAI's; the other name is pydantic's own."""

    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class ResponseFormat(Body):
    """OpenAI's structured output."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class StructuredOutputs(Body):
    """vLLM's structured output, as far as it is JSON."""

    json_: Annotated[dict[str, Any] | str | None, Field(alias="json")] = None


Count = Annotated[int, Field(ge=1)]
Token = Annotated[int, Field(ge=0, lt=1 << 31)]
Tokens = Annotated[list[Token], Field(min_length=1)]
StopText = Annotated[str, Field(max_length=256)]
Stop = StopText | Annotated[list[StopText], Field(max_length=16)] | None
Penalty = Annotated[float, Field(ge=-2, le=2, strict=False)]
Bias = Annotated[float, Field(ge=-100, le=100, strict=False)]
TokenText = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Schema = dict[str, Any] | str | None


class Generation(Body):
    """What both endpoints have in common. Below `stop_token_ids` are fields that are not OpenAI's, named as in vLLM."""

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2, strict=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, strict=False)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[TokenText, Bias], Field(max_length=1024)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)] | None = None
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=CHOICES_MAX)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=64)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1, strict=False)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10, strict=False)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    ignore_eos: bool | None = None
    guided_json: Schema = None
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: bool | None = None
    continue_token_ids: list[Token] | None = None
    """Not OpenAI's and not vLLM's: what the answer has already. It goes on from there, as if it had never stopped."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings, none of them empty."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)

    @property
    def includes_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


class TextPart(Body):
    """One part of a message's content; only text is served."""

    type: Literal["text"]
    text: str


class Message(Body):
    """One message of a chat."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str | list[TextPart] | None = None

    def as_template(self) -> dict[str, str]:
        """What chat templates take."""
        parts = self.content if isinstance(self.content, list) else []
        text = "".join(part.text for part in parts) if parts else self.content or ""
        return {"role": self.role, "content": str(text)}


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=LOGPROBS_MAX)] | None = None

    @property
    def wanted_logprobs(self) -> int | None:
        """How many likely tokens come with each token; None: no log probabilities."""
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs: needs logprobs to be true", code="invalid_value", param="top_logprobs")
        return self.top_logprobs or 0 if self.logprobs else None


class CompletionRequest(Generation):
    """POST /v1/completions. The prompt is a text or a list of token ids, or several of one kind."""

    prompt: (
        str
        | Tokens
        | Annotated[list[str], Field(min_length=1, max_length=PROMPTS_MAX)]
        | Annotated[list[Tokens], Field(min_length=1, max_length=PROMPTS_MAX)]
    )
    logprobs: Annotated[int, Field(ge=0, le=LOGPROBS_MAX)] | Literal[False] | None = None
    echo: bool | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """One entry a prompt."""
        given = self.prompt
        if isinstance(given, list) and not isinstance(given[0], int):
            return list(given)
        return [given]

    @property
    def wanted_logprobs(self) -> int | None:
        """How many likely tokens come with each token; None: no log probabilities."""
        return None if self.logprobs is None or self.logprobs is False else self.logprobs


class TokenizeRequest(Body):
    """POST /tokenize: a text, or a chat as the model's template writes it."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool | None = None


class DetokenizeRequest(Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[Token]


# Fields whose wrong values are right elsewhere: the answer says that it is the shard which cannot.
NOT_SERVED: Final = {
    "n": f"this pool gives 1 to {CHOICES_MAX} answers a prompt",
    "tools": "not supported by this pool",
}

B = TypeVar("B", bound=Body)


def parse(kind: type[B], raw: bytes) -> B:
    """Read a body. Raises ApiError 400 that names the field."""
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise ApiError(400, f"the body is not valid JSON: {first['msg']}", code="invalid_json") from error
        field = ".".join(str(part) for part in first["loc"] if not is_kind(part))
        raise ApiError(
            400,
            f"{field or 'the body'}: {NOT_SERVED.get(field, first['msg'])}",
            code="invalid_value",
            param=field or None,
        ) from error


def is_kind(part: str | int) -> bool:
    """Whether a step of pydantic's path names one of the kinds that a field may have, not a field."""
    return isinstance(part, str) and (part in ("str", "bool") or "[" in part or part.startswith("constrained-"))
