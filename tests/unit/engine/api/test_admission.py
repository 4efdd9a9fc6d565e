"""What is let in: prompts as ids, defaults of sampling, and when there is too much to do already."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tokenpool_engine.api.admission import admit, check_queue
from tokenpool_engine.api.errors import ApiError
from tokenpool_engine.api.openai import ChatRequest, CompletionRequest, parse
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


class Decoding(LettersTokenizer):
    """One that also reads ids."""

    def decode(self, ids: list[int], **_keywords: bool) -> str:
        return "".join(map(chr, ids))


def text(**fields: Any) -> CompletionRequest:
    return parse(CompletionRequest, json.dumps({"model": "m", "prompt": "ab", **fields}).encode())


def chat(*contents: str, role: str = "user", **fields: Any) -> ChatRequest:
    messages = [{"role": role, "content": content} for content in contents]
    return parse(ChatRequest, json.dumps({"model": "m", "messages": messages, **fields}).encode())


CONTINUED = FakeParts(tokenizer=Decoding())


def let_in(body: ChatRequest | CompletionRequest, parts: FakeParts | None = None) -> Any:
    return admit(body, parts or FakeParts(), "id")  # type: ignore[arg-type]


def the_request(body: ChatRequest | CompletionRequest, parts: FakeParts | None = None) -> Any:
    [choice] = let_in(body, parts).choices
    return choice.request


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
    assert the_request(body).prompt == prompt


def test_what_is_not_given_gets_openais_defaults_and_a_seed_of_its_own() -> None:
    first, second = the_request(text()), the_request(text())
    assert (first.max_tokens, first.stop_ids) == (16, frozenset({2}))
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (1.0, 1.0, 0)
    assert first.sampling.seed != second.sampling.seed


def test_what_is_given_is_taken_zeros_included() -> None:
    body = text(temperature=0, top_p=0.5, top_k=7, seed=0, max_tokens=3, stop=["x"], ignore_eos=True)
    one = the_request(body)
    assert one.sampling == Sampling(0.0, 0.5, 7, 0)
    assert (one.max_tokens, one.stop_ids) == (3, frozenset())


def test_every_parameter_reaches_its_place() -> None:
    body = text(
        temperature=0.5,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        repetition_penalty=1.4,
        logit_bias={"5": -100, "6": 1.5},
        logprobs=3,
        min_tokens=2,
        stop_token_ids=[9, 8],
        seed=4,
    )
    one = the_request(body)
    assert one.sampling == Sampling(0.5, 1.0, 0, 4, 0.1, 0.2, -0.3, 1.4, ((5, -100.0), (6, 1.5)), 3, 2)
    assert one.stop_ids == {2, 8, 9}


def test_without_the_models_stop_ids_the_given_ones_still_count() -> None:
    assert the_request(text(ignore_eos=True, stop_token_ids=[9])).stop_ids == {9}


def test_every_choice_has_a_seed_of_its_own_and_the_first_one_that_of_a_lone_answer() -> None:
    first, second, third = (choice.request for choice in let_in(text(n=3, seed=7)).choices)
    assert first.sampling.seed == 7
    assert len({7, 8, second.sampling.seed, third.sampling.seed}) == 4
    assert [one.request.sampling.seed for one in let_in(text(n=3, seed=7)).choices][1] == second.sampling.seed
    assert len({first.id, second.id, third.id}) == 3


def test_several_prompts_times_n_come_in_order_and_count_their_prompts_once() -> None:
    admitted = let_in(text(prompt=[[5], [6, 7]], n=2, max_tokens=3))
    assert [choice.request.prompt for choice in admitted.choices] == [(5,), (5,), (6, 7), (6, 7)]
    assert (admitted.prompt_tokens, admitted.tokens) == (3, 2 * 4 + 2 * 5)


def test_a_continued_answer_begins_with_what_there_is_of_it() -> None:
    one = the_request(text(prompt=[5], max_tokens=10, continue_token_ids=[6, 7]), CONTINUED)
    assert (one.prompt, one.output, one.known, one.limit) == ((5,), [6, 7], 3, 11)


def test_top_k_minus_one_means_no_bound() -> None:
    assert the_request(text(top_k=-1)).sampling.top_k == 0


def test_a_chat_without_a_bound_does_not_take_a_whole_long_context() -> None:
    assert the_request(chat("a"), FakeParts(limits=Limits(10_000, 1000))).max_tokens == 1024


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (text(prompt=[255, 256]), "prompt", "must be below 256"),
        (text(prompt="\u0101"), "prompt", "must be below 256"),
        (chat("\u0101"), "messages", "must be below 256"),
        (chat(""), "messages", "no tokens"),
        (chat("a", role="alien"), "messages", "no aliens"),
        (text(prompt="x" * 99), "prompt", "the prompt has 100 tokens, but this pool allows 100 with the answer"),
        (text(prompt=[[1], [300]]), "prompt", "must be below 256"),
        (text(logit_bias={"256": 1}), "logit_bias", "must be below 256"),
        (text(min_tokens=17), "min_tokens", "17 tokens are more than max_tokens, which is 16"),
        (text(continue_token_ids=[256]), "continue_token_ids", "must be below 256"),
        (text(continue_token_ids=[1], n=2), "continue_token_ids", "only one answer can be continued"),
        (text(continue_token_ids=[1] * 5, max_tokens=4), "continue_token_ids", "5 tokens are more than max_tokens"),
        (text(prompt=[[1]] * 32, n=3), "n", "96 answers are asked for; at most 64"),
        (text(n=16, max_tokens=90), "n", "may take 1488 tokens; this shard queues 1000"),
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
