"""From a request body to token ids within the limits, or a refusal that names the numbers. No engine, no HTTP."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from tokenpool_engine.api.openai import ApiError, ChatRequest, CompletionRequest
from tokenpool_engine.request import Request, Sampling
from tokenpool_engine.shard import Parts

# OpenAI's default for completions; a chat without a bound gets one that does not take the whole cache.
COMPLETION_MAX_TOKENS = 16
CHAT_MAX_TOKENS = 1024
LONGEST_RETRY_SECONDS = 60


@dataclass(frozen=True)
class Admitted:
    """A request that fits."""

    request: Request
    stops: tuple[str, ...]


def admit(body: ChatRequest | CompletionRequest, parts: Parts, request_id: str) -> Admitted:
    """Tokenize and check; takes milliseconds for long prompts, so call it in a thread. Raises ApiError."""
    prompt = chat_ids(body, parts.tokenizer) if isinstance(body, ChatRequest) else prompt_ids(body, parts)
    field = "messages" if isinstance(body, ChatRequest) else "prompt"
    if not prompt:
        raise ApiError(400, "the prompt has no tokens", code="invalid_value", param=field)
    if max(prompt) >= parts.vocabulary:
        # Also from text: a tokenizer may know more than the model. Such a step would fail for all its requests.
        raise ApiError(400, f"{field}: token ids must be below {parts.vocabulary}", param=field)
    max_tokens = fit(body, len(prompt), parts.limits.model_length)
    sampling = Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(body.top_k or 0, 0),
        seed=secrets.randbits(63) if body.seed is None else body.seed,
    )
    stop_ids = frozenset() if body.ignore_eos else parts.stop_ids
    return Admitted(Request(request_id, tuple(prompt), max_tokens, sampling, stop_ids), body.stops)


def fit(body: ChatRequest | CompletionRequest, prompt_tokens: int, model_length: int) -> int:
    """max_tokens of the request. Raises ApiError when prompt and answer are longer than the shard allows."""
    room = model_length - prompt_tokens
    if room < 1:
        raise ApiError(
            400,
            f"the prompt has {prompt_tokens} tokens, but this pool allows {model_length} with the answer",
            code="context_length_exceeded",
            param="messages" if isinstance(body, ChatRequest) else "prompt",
        )
    chat_bound = body.max_completion_tokens if isinstance(body, ChatRequest) else None
    asked = chat_bound or body.max_tokens
    if asked is None:
        return min(room, CHAT_MAX_TOKENS if isinstance(body, ChatRequest) else COMPLETION_MAX_TOKENS)
    if asked > room:
        raise ApiError(
            400,
            f"max_tokens is {asked}, but after a prompt of {prompt_tokens} tokens this pool allows {room} "
            f"({model_length} together)",
            code="context_length_exceeded",
            param="max_completion_tokens" if chat_bound else "max_tokens",
        )
    return asked


def chat_ids(body: ChatRequest, tokenizer: Any) -> list[int]:
    """The chat as the model's template writes it."""
    messages = [message.as_template() for message in body.messages]
    try:
        text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except (TemplateError, ValueError, TypeError) as error:
        raise ApiError(400, f"messages: the model's chat template refuses them: {error}", param="messages") from error
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def prompt_ids(body: CompletionRequest, parts: Parts) -> list[int]:
    """The prompt's ids: as given, or of its text."""
    prompt = body.prompt
    text = prompt if isinstance(prompt, str) else prompt[0]
    if isinstance(text, str):
        return list(parts.tokenizer(text)["input_ids"])
    return [int(token) for token in prompt]


def check_queue(parts: Parts, more: int, tokens_per_second: Callable[[], float]) -> None:
    """Raises ApiError 429 when there is too much to do already, with the time that the backlog takes."""
    outstanding = parts.engine.outstanding_tokens()
    if outstanding and outstanding + more > parts.limits.queue_tokens:
        seconds = outstanding / max(tokens_per_second(), 1.0)
        raise ApiError(
            429,
            f"this shard has {outstanding} tokens to do already",
            code="overloaded",
            retry_after=max(1, min(round(seconds), LONGEST_RETRY_SECONDS)),
        )
