"""What is let in: prompts as ids, defaults of sampling, and when there is too much to do already."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tokenpool_engine.api.admission import admit, check_queue
from tokenpool_engine.api.openai import ApiError, ChatRequest, CompletionRequest, parse
from tokenpool_engine.request import Sampling
from tokenpool_engine.shard import Limits


class LettersTokenizer:
    """A fake tokenizer: one id a letter. Its chat template refuses the role "alien"."""

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [*([1] if add_special_tokens else []), *map(ord, text)]}

    def apply_chat_template(self, messages: list[dict[str, str]], **_keywords: bool) -> str:
        if any(message["role"] == "alien" for message in messages):
            raise ValueError("no aliens")
        return "".join(message["content"] for message in messages)


@dataclass
class FakeEngine:
    """An engine with so much to do."""

    outstanding: Iterator[int] = field(default_factory=lambda: iter([0]))

    def outstanding_tokens(self) -> int:
        return next(self.outstanding)


@dataclass
class FakeParts:
    """What admission needs of a shard."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    tokenizer: Any = field(default_factory=LettersTokenizer)
    stop_ids: frozenset[int] = frozenset({2})
    limits: Limits = field(default_factory=lambda: Limits(100, 1000))
    vocabulary: int = 256


def text(**fields: Any) -> CompletionRequest:
    return parse(CompletionRequest, json.dumps({"model": "m", "prompt": "ab", **fields}).encode())


def chat(*contents: str, role: str = "user", **fields: Any) -> ChatRequest:
    messages = [{"role": role, "content": content} for content in contents]
    return parse(ChatRequest, json.dumps({"model": "m", "messages": messages, **fields}).encode())


def let_in(body: ChatRequest | CompletionRequest, parts: FakeParts | None = None) -> Any:
    return admit(body, parts or FakeParts(), "id")  # type: ignore[arg-type]


def refused(body: ChatRequest | CompletionRequest) -> ApiError:
    with pytest.raises(ApiError) as error:
        let_in(body)
    return error.value


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        (text(prompt="ab"), (1, 97, 98)),
        (text(prompt=["ab"]), (1, 97, 98)),
        (text(prompt=[5, 6]), (5, 6)),
        (chat("a", "b"), (97, 98)),
    ],
)
def test_text_gets_special_tokens_but_ids_and_templates_bring_their_own(body: Any, prompt: tuple[int, ...]) -> None:
    assert let_in(body).request.prompt == prompt


def test_what_is_not_given_gets_openais_defaults_and_a_seed_of_its_own() -> None:
    first, second = let_in(text()).request, let_in(text()).request
    assert (first.max_tokens, first.stop_ids) == (16, frozenset({2}))
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (1.0, 1.0, 0)
    assert first.sampling.seed != second.sampling.seed


def test_what_is_given_is_taken_zeros_included() -> None:
    body = text(temperature=0, top_p=0.5, top_k=7, seed=0, max_tokens=3, stop=["x"], ignore_eos=True)
    admitted = let_in(body)
    assert admitted.request.sampling == Sampling(0.0, 0.5, 7, 0)
    assert (admitted.request.max_tokens, admitted.request.stop_ids, admitted.stops) == (3, frozenset(), ("x",))


def test_top_k_minus_one_means_no_bound() -> None:
    assert let_in(text(top_k=-1)).request.sampling.top_k == 0


def test_a_chat_without_a_bound_does_not_take_a_whole_long_context() -> None:
    assert let_in(chat("a"), FakeParts(limits=Limits(10_000, 1000))).request.max_tokens == 1024


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (text(prompt=[255, 256]), "prompt", "must be below 256"),
        (text(prompt="\u0101"), "prompt", "must be below 256"),
        (chat("\u0101"), "messages", "must be below 256"),
        (chat(""), "messages", "no tokens"),
        (chat("a", role="alien"), "messages", "no aliens"),
        (text(prompt="x" * 99), "prompt", "the prompt has 100 tokens, but this pool allows 100 with the answer"),
        (text(max_tokens=98), "max_tokens", "max_tokens is 98, but after a prompt of 3 tokens this pool allows 97"),
    ],
)
def test_refusals_name_field_and_numbers(body: Any, param: str, words: str) -> None:
    error = refused(body)
    assert (error.status, error.param) == (400, param)
    assert words in error.message


@pytest.mark.parametrize(
    ("outstanding", "more", "rate", "wait"),
    [
        (0, 5000, 10.0, None),
        (900, 100, 10.0, None),
        (900, 101, 10.0, 60),
        (990, 20, 100.0, 10),
        (990, 20, 1e6, 1),
        (990, 20, 0.0, 60),
    ],
)
def test_the_queue_has_a_bound_and_the_wait_is_what_the_backlog_takes(
    outstanding: int, more: int, rate: float, wait: int | None
) -> None:
    parts: Any = FakeParts(FakeEngine(iter([outstanding])))
    if wait is None:
        check_queue(parts, more, lambda: rate)
        return
    with pytest.raises(ApiError, match=f"{outstanding} tokens") as error:
        check_queue(parts, more, lambda: rate)
    assert (error.value.status, error.value.code, error.value.retry_after) == (429, "overloaded", wait)
