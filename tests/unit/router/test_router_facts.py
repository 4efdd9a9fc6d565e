"""What a body tells of its cost, and what answers teach about it."""

import json
from typing import Any

import pytest

from tokenpool_router.journey.facts import MOST_MODELS, Facts, Learned, Models, read_facts


def facts(**body: Any) -> Facts:
    return read_facts(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("body", "size", "ids", "messages", "answers"),
    [
        ({"prompt": "abcd"}, 4, 0, 0, 1),
        ({"prompt": "äö"}, 4, 0, 0, 1),
        ({"prompt": ["abc", "de"], "n": 2}, 5, 0, 0, 4),
        ({"prompt": [1, 2, 3]}, 0, 3, 0, 1),
        ({"prompt": [[1, 2], [3]]}, 0, 3, 0, 2),
        ({"prompt": 7}, 0, 0, 0, 1),
        ({"messages": [{"content": "abc"}, {"content": None}, 5]}, 3, 0, 3, 1),
        ({"messages": [{"content": [{"type": "text", "text": "ab"}, {"type": "image"}, 1]}]}, 2, 0, 1, 1),
        ({"messages": [], "tools": [1, 2]}, 5, 0, 0, 1),
        ({"messages": "no", "n": -1}, 0, 0, 0, 1),
    ],
)
def test_sizes(body: dict[str, Any], size: int, ids: int, messages: int, answers: int) -> None:
    found = facts(**body)
    assert (found.prompt_bytes, found.prompt_ids, found.messages, found.answers) == (size, ids, messages, answers)


@pytest.mark.parametrize("body", [b"not json", b"[1]", b'{"a": ', b"\xff\xfe"])
def test_what_cannot_be_read_counts_by_its_size(body: bytes) -> None:
    facts = read_facts(body)
    assert (facts.prompt_bytes, facts.prompt_ids, facts.answers, facts.is_stream) == (len(body), 0, 1, False)
    assert read_facts(b"").prompt_bytes == 0


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"stream": True, "prompt": "a"}, True),
        ({"stream": True, "messages": [], "logprobs": True}, True),
        ({"prompt": "a"}, False),
        ({"stream": True, "prompt": ["a", "b"]}, False),
        ({"stream": True, "prompt": "a", "n": 2}, False),
        ({"stream": True, "prompt": "a", "echo": True}, False),
        ({"stream": True, "prompt": "a", "logprobs": 0}, False),
    ],
)
def test_which_streams_can_be_gone_on_with(body: dict[str, Any], wanted: bool) -> None:
    assert facts(**body).can_continue is wanted


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"max_tokens": 10}, 10),
        ({"max_tokens": 10, "max_completion_tokens": 7}, 7),
        ({"max_tokens": "many"}, 385),
        ({"max_tokens": -5}, 385),
        ({"max_tokens": 99999999999}, 385),
        ({"max_tokens": True}, 385),
        ({"max_tokens": 10, "n": 3}, 30),
    ],
)
def test_a_bound_counts_unless_answers_never_are_that_long(body: dict[str, Any], tokens: int) -> None:
    assert Learned().expected_answer_tokens(facts(prompt="x", **body)) == tokens


def test_estimates_come_near_what_answers_told() -> None:
    learned, request = Learned(), facts(prompt="x" * 1000)
    assert learned.prompt_tokens(request) == 250
    for _ in range(200):
        learned.learn(request, 500, 100)
    assert learned.prompt_tokens(request) == pytest.approx(500, rel=0.02)
    assert learned.expected_answer_tokens(request) == pytest.approx(151, rel=0.05)
    learned.learn(facts(prompt=[1, 2]), 2, 100)
    assert learned.prompt_tokens(facts(prompt=[1, 2, 3])) == 3, "ids need no estimate"


def test_names_that_clients_make_up_do_not_pile_up() -> None:
    models = Models()
    found = [models.of(str(number)) for number in range(MOST_MODELS * 2)]
    assert len(set(map(id, found))) == MOST_MODELS + 1
    assert models.of("0") is found[0]
