"""OpenAI's request bodies, as far as the shard serves them. Unknown fields are tolerated, wrong ones named."""

from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class ApiError(Exception):
    """A refusal in OpenAI's form."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "invalid_request",
        param: str | None = None,
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The error envelope."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class Body(BaseModel):
    """Base of request bodies: strict about types, tolerant about unknown names."""

    model_config = ConfigDict(extra="ignore", strict=True)


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = None


Count = Annotated[int, Field(ge=1)]
Stop = str | Annotated[list[str], Field(max_length=16)] | None


class Generation(Body):
    """What both endpoints have in common."""

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2, strict=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, strict=False)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    seed: int | None = None
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    ignore_eos: bool | None = None
    """Not OpenAI's: go on to max_tokens, for load tests."""
    logprobs: Literal[False] | Literal[0] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None

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


class CompletionRequest(Generation):
    """POST /v1/completions. The prompt is one text or one list of token ids."""

    prompt: (
        str
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1, max_length=1)]
    )


# Fields whose wrong values are right elsewhere: the answer says that it is the shard which cannot.
NOT_SERVED: Final = {
    "logprobs": "not supported by this pool",
    "n": "this pool gives one answer a request; more than 1 is not supported",
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
    return isinstance(part, str) and (part == "str" or "[" in part)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """The usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
