"""The same requests for every server, and text that means the same ids."""

import json
from collections.abc import Sequence

import pytest

from engine_bench import plan
from engine_bench.requests import ANSWER_TOKENS, PROMPT_TOKENS, Request, Words, body, draw, static_batches

WORDS: Words = [(" the", 5), (" of", 7), (" and", 9)]


def test_a_request_is_a_function_of_stream_and_index() -> None:
    assert draw("32", 4, 100) == draw("32", 4, 100)
    # Pinned: results of different days and machines compare only while this stays.
    assert (len(draw("32", 4, 100).words), draw("32", 4, 100).answer_tokens) == (125, 41)


def test_streams_share_no_prompt() -> None:
    prompts = [draw(stream, index, 1000).words for stream in ("1", "8", "32") for index in range(50)]
    assert len(set(prompts)) == len(prompts)


def test_lengths_stay_within_their_ranges_and_reach_them() -> None:
    drawn = [draw("x", index, 10) for index in range(5000)]
    assert _range([len(request.words) for request in drawn]) == PROMPT_TOKENS
    assert _range([request.answer_tokens for request in drawn]) == ANSWER_TOKENS


def _range(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


def test_text_and_ids_are_the_same_prompt() -> None:
    request = draw("x", 0, len(WORDS))
    ids = json.loads(body(request, WORDS, as_text=False, model="m"))
    text = json.loads(body(request, WORDS, as_text=True, model="m"))
    assert text["prompt"] == "".join({token: word for word, token in WORDS}[token] for token in ids["prompt"])
    assert ids["max_tokens"] == text["max_tokens"] == request.answer_tokens
    assert ids["ignore_eos"] is True
    assert "ignore_eos" not in text


@pytest.mark.parametrize("visits", [plan.quick(), plan.full()], ids=["quick", "full"])
def test_a_plan_files_nothing_twice(visits: list[plan.Visit]) -> None:
    keys = [(visit.key, point.key) for visit in visits for point in visit.points]
    assert len(set(keys)) == len(keys)


def test_a_quick_run_is_a_part_of_a_full_one() -> None:
    assert {visit.key for visit in plan.quick()} <= {visit.key for visit in plan.full()}


def test_a_static_batch_computes_every_row_until_the_longest_of_its_group_has_ended() -> None:
    requests = [Request((number,), tokens) for number, tokens in enumerate((5, 9, 2, 7, 3))]
    assert [one.answer_tokens for one in static_batches(requests, 2)] == [9, 9, 7, 7, 3]
    assert [one.words for one in static_batches(requests, 2)] == [one.words for one in requests]
