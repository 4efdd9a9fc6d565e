"""From a request body to token ids within the limits, or a refusal that names the numbers. No engine, no HTTP."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import TemplateError

from tokenpool_engine.api.errors import ApiError
from tokenpool_engine.api.openai import ChatRequest, CompletionRequest, Message
from tokenpool_engine.api.text import Detokenizer
from tokenpool_engine.grammar import Grammar
from tokenpool_engine.request import Request, Sampling
from tokenpool_engine.shard import Parts

# OpenAI's default for completions; a chat without a bound gets one that does not take the whole cache.
COMPLETION_MAX_TOKENS = 16
CHAT_MAX_TOKENS = 1024
ANSWERS_MAX = 64
LONGEST_RETRY_SECONDS = 60


@dataclass(frozen=True)
class Choice:
    """One answer that is let in: the engine's request, its text so far, and the text that is given out before it."""

    request: Request
    detokenizer: Detokenizer
    echo: str = ""


@dataclass(frozen=True)
class Admitted:
    """A body that fits, as one choice an answer: those of the first prompt come first."""

    choices: tuple[Choice, ...]
    prompt_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of all answers with their prompts, at most."""
        return sum(choice.request.limit for choice in self.choices)


def admit(
    body: ChatRequest | CompletionRequest, parts: Parts, request_id: str, grammar: Grammar | None = None
) -> Admitted:
    """Tokenize and check; takes milliseconds for long prompts, so call it in a thread. Raises ApiError."""
    prompts = [chat_ids(body.messages, parts.tokenizer)] if isinstance(body, ChatRequest) else prompt_ids(body, parts)
    answers = len(prompts) * (body.n or 1)
    if answers > ANSWERS_MAX:
        raise ApiError(400, f"n: {answers} answers are asked for; at most {ANSWERS_MAX}", param="n")
    check_continuation(body, answers, parts)
    sampling = read_sampling(body, parts)
    choices: list[Choice] = []
    for prompt in prompts:
        check_prompt(prompt, parts.vocabulary, prompt_field(body))
        max_tokens = fit(body, len(prompt), parts.limits.model_length)
        echo = parts.tokenizer.decode(prompt, skip_special_tokens=True) if getattr(body, "echo", None) else ""
        for index in range(body.n or 1):
            name = f"{request_id}-{len(choices)}" if answers > 1 else request_id
            own = replace(sampling, seed=choice_seed(sampling.seed, index), guide=grammar.guide() if grammar else None)
            choices.append(make_choice(body, parts, Request(name, tuple(prompt), max_tokens, own), echo))
    admitted = Admitted(tuple(choices), sum(map(len, prompts)))
    if answers > 1 and admitted.tokens > parts.limits.queue_tokens:
        text = f"n: {answers} answers may take {admitted.tokens} tokens; this shard queues {parts.limits.queue_tokens}"
        raise ApiError(400, text, param="n")
    return admitted


def make_choice(body: ChatRequest | CompletionRequest, parts: Parts, request: Request, echo: str) -> Choice:
    """Add where the answer may end, and what there is of it already."""
    # A grammar's end is told by the model's own stop ids.
    ends = frozenset() if body.ignore_eos and not request.sampling.guide else parts.stop_ids
    request.stop_ids = ends.union(body.stop_token_ids or ())
    detokenizer = Detokenizer(parts.tokenizer, body.stops, request.sampling.min_tokens)
    request.output += body.continue_token_ids or ()
    detokenizer.push(request.output)
    return Choice(request, detokenizer, "" if request.output else echo)


def read_sampling(body: ChatRequest | CompletionRequest, parts: Parts) -> Sampling:
    """How tokens are picked, with OpenAI's defaults."""
    bias = tuple((int(token), value) for token, value in (body.logit_bias or {}).items())
    if bias and max(token for token, _ in bias) >= parts.vocabulary:
        raise ApiError(400, f"logit_bias: token ids must be below {parts.vocabulary}", param="logit_bias")
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(body.top_k or 0, 0),
        seed=secrets.randbits(63) if body.seed is None else body.seed,
        min_p=body.min_p or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        logit_bias=bias,
        logprobs=body.wanted_logprobs,
        min_tokens=body.min_tokens or 0,
    )


def choice_seed(seed: int, index: int) -> int:
    """Every choice has random numbers of its own; the first one those that it would have alone."""
    if not index:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest(), "big")


def check_prompt(prompt: list[int], vocabulary: int, field: str) -> None:
    """Raises ApiError for a prompt that no step could compute."""
    if not prompt:
        raise ApiError(400, "the prompt has no tokens", code="invalid_value", param=field)
    if max(prompt) >= vocabulary:
        # Also from text: a tokenizer may know more than the model. Such a step would fail for all its requests.
        raise ApiError(400, f"{field}: token ids must be below {vocabulary}", param=field)


def check_continuation(body: ChatRequest | CompletionRequest, answers: int, parts: Parts) -> None:
    """Raises ApiError for an answer so far that cannot be gone on with."""
    if not body.continue_token_ids:
        return
    field = "continue_token_ids"
    if answers > 1:
        raise ApiError(400, f"{field}: only one answer can be continued, but {answers} are asked for", param=field)
    if max(body.continue_token_ids) >= parts.vocabulary:
        raise ApiError(400, f"{field}: token ids must be below {parts.vocabulary}", param=field)


def prompt_field(body: ChatRequest | CompletionRequest) -> str:
    """The field that holds the prompt."""
    return "messages" if isinstance(body, ChatRequest) else "prompt"


def fit(body: ChatRequest | CompletionRequest, prompt_tokens: int, model_length: int) -> int:
    """max_tokens of the request. Raises ApiError when prompt and answer are longer than the shard allows."""
    room = model_length - prompt_tokens
    if room < 1:
        raise ApiError(
            400,
            f"the prompt has {prompt_tokens} tokens, but this pool allows {model_length} with the answer",
            code="context_length_exceeded",
            param=prompt_field(body),
        )
    chat_bound = body.max_completion_tokens if isinstance(body, ChatRequest) else None
    asked = chat_bound or body.max_tokens
    field = "max_completion_tokens" if chat_bound else "max_tokens"
    if asked is None:
        asked = min(room, CHAT_MAX_TOKENS if isinstance(body, ChatRequest) else COMPLETION_MAX_TOKENS)
    elif asked > room:
        raise ApiError(
            400,
            f"max_tokens is {asked}, but after a prompt of {prompt_tokens} tokens this pool allows {room} "
            f"({model_length} together)",
            code="context_length_exceeded",
            param=field,
        )
    for name, least in (
        ("min_tokens", body.min_tokens or 0),
        ("continue_token_ids", len(body.continue_token_ids or ())),
    ):
        if least > asked:
            raise ApiError(400, f"{name}: {least} tokens are more than max_tokens, which is {asked}", param=name)
    return asked


def chat_ids(messages: list[Message], tokenizer: Any, *, add_generation_prompt: bool = True) -> list[int]:
    """The chat as the model's template writes it."""
    plain = [message.as_template() for message in messages]
    try:
        text: str = tokenizer.apply_chat_template(plain, add_generation_prompt=add_generation_prompt, tokenize=False)
    except (TemplateError, ValueError, TypeError) as error:
        raise ApiError(400, f"messages: the model's chat template refuses them: {error}", param="messages") from error
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def prompt_ids(body: CompletionRequest, parts: Parts) -> list[list[int]]:
    """The ids of each prompt: as given, or of its text."""
    return [
        list(parts.tokenizer(prompt)["input_ids"]) if isinstance(prompt, str) else prompt for prompt in body.prompts
    ]


def check_queue(parts: Parts, more: int, work_per_second: Callable[[], float]) -> None:
    """Raises ApiError 429 when there is too much to do already, with the time that the backlog takes."""
    outstanding = parts.engine.outstanding_tokens()
    if outstanding and outstanding + more > parts.limits.queue_tokens:
        seconds = outstanding / max(work_per_second(), 1.0)
        raise ApiError(
            429,
            f"this shard has {outstanding} tokens to do already",
            code="overloaded",
            retry_after=max(1, min(round(seconds), LONGEST_RETRY_SECONDS)),
        )
