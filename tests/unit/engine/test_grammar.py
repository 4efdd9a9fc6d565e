"""Structured output: whatever the logits say, the text follows the schema; a bad schema costs its own request only."""

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tokenpool_engine.compute.sampling import pick
from tokenpool_engine.grammar import SCHEMA_BYTES, WAITING_MAX, Grammar, Grammars, SchemaError, TooManySchemas, prove
from tokenpool_engine.request import STUCK, Finish, Request, Sampling

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
}


def fits(found: Any) -> bool:
    return (
        list(found) == ["name", "age", "kind", "tags"]
        and isinstance(found["name"], str)
        and len(found["name"]) <= 8
        and found["age"] in range(121)
        and found["kind"] in ("cat", "dog")
        and len(found["tags"]) <= 3
        and all(isinstance(tag, bool) for tag in found["tags"])
    )


@pytest.fixture
def grammars(tokenizer: Any) -> Iterator[Grammars]:
    made = Grammars(tokenizer, 257, frozenset({256}), lambda _schema: "")
    yield made
    made.close()


def request(grammar: Grammar, seed: int, output: tuple[int, ...] = (), stop: int = 256) -> Request:
    sampling = Sampling(1.0, seed=seed, guide=grammar.guide())
    return Request("r", (1,), 400, sampling, frozenset({stop}), list(output))


def run(one: Request, vocabulary: int, seed: int) -> Request:
    """To the end, on random logits that depend on the position only."""
    while not one.finish:
        chance = torch.Generator().manual_seed(seed * 10_000 + one.known)
        one.append(pick(torch.randn(1, vocabulary, generator=chance) * 3, [one])[0])
    return one


@pytest.mark.parametrize("seed", range(8))
async def test_random_logits_give_what_the_schema_says(grammars: Grammars, tokenizer: Any, seed: int) -> None:
    one = run(request(await grammars.compile(json.dumps(PERSON)), seed), 257, seed)
    assert one.finish == Finish.STOP
    assert fits(json.loads(tokenizer.decode(one.output)))


@pytest.mark.model
@pytest.mark.parametrize("seed", range(3))
async def test_random_logits_over_a_real_vocabulary_too(seed: int, smollm2: Path) -> None:
    real = AutoTokenizer.from_pretrained(smollm2)
    grammars = Grammars(real, 49152, frozenset({2}), lambda _schema: "")
    one = run(request(await grammars.compile(json.dumps(PERSON)), seed, stop=2), 49152, seed)
    grammars.close()
    assert one.finish == Finish.STOP
    assert fits(json.loads(real.decode(one.output)))


async def test_an_answer_continued_elsewhere_goes_on_the_same(grammars: Grammars) -> None:
    grammar = await grammars.compile(json.dumps(PERSON))
    whole = run(request(grammar, 3), 257, 3)
    for cut in (1, len(whole.output) // 2, len(whole.output) - 1, len(whole.output)):
        rest = run(request(grammar, 3, tuple(whole.output[:cut])), 257, 3)
        assert (rest.output, rest.finish) == (whole.output, Finish.STOP)


async def test_a_guide_follows_an_output_that_was_taken_back(grammars: Grammars, tokenizer: Any) -> None:
    guide = (await grammars.compile('{"enum": ["abc", "xyz"]}')).guide()
    start = guide.allowed([])
    after_a = guide.allowed(tokenizer('"a')["input_ids"])
    after_x = guide.allowed(tokenizer('"x')["input_ids"])
    assert None not in (start, after_a, after_x)
    assert len({start, after_a, after_x}) == 3
    assert guide.allowed([]) == start


async def test_output_that_the_grammar_does_not_allow_ends_in_an_error(grammars: Grammars) -> None:
    one = request(await grammars.compile('{"type": "object"}'), 0, tuple(b"nonsense"))
    assert pick(torch.zeros(1, 257), [one]) == [STUCK]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": "object"}', ""),
        ("{}", ""),
        ('{"type": "nonsense"}', "Invalid type"),
        ('{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ('{"type": "string", "pattern": "("}', "regex parse error"),
        ("5", "it is not a JSON object"),
        ("{", "it is not a JSON object"),
        ('{"items":' * 5000 + "{}" + "}" * 5000, "it"),
        # Without a bound this one takes minutes.
        (
            json.dumps({"allOf": [{"type": "string", "pattern": f"a{{{n}}}.*b{{{n}}}"} for n in range(1, 60)]}),
            "it takes too much to compile",
        ),
    ],
    ids=["object", "anything", "type", "unsupported", "pattern", "number", "no JSON", "deep", "endless"],
)
def test_schemas_are_proven_where_they_can_do_no_harm(schema: str, words: str) -> None:
    fault = prove(schema)
    assert fault.startswith(words) if words == "it" else words in fault
    assert bool(fault) == bool(words)


class Checks:
    """A check that waits for the gate and counts."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.calls, self.gate = fault, 0, threading.Event()
        self.gate.set()

    def __call__(self, schema: str) -> str:
        self.calls += 1
        self.gate.wait(10)
        return self.fault


@pytest.mark.parametrize("fault", ["", "no good"])
async def test_a_schema_is_compiled_once_good_or_bad(tokenizer: Any, fault: str) -> None:
    checks = Checks(fault)
    grammars = Grammars(tokenizer, 257, frozenset({256}), checks)
    for _ in range(3):
        both = await asyncio.gather(*(grammars.compile("{}") for _ in range(2)), return_exceptions=True)
        assert [isinstance(one, SchemaError) for one in both] == [bool(fault)] * 2
    assert checks.calls == 1
    grammars.close()


async def test_waiting_schemas_have_a_bound_and_known_ones_do_not_wait(tokenizer: Any) -> None:
    checks = Checks()
    grammars = Grammars(tokenizer, 257, frozenset({256}), checks)
    known = await grammars.compile("{}")
    checks.gate.clear()
    schemas = [json.dumps({"const": number}) for number in range(WAITING_MAX)]
    waiting = [asyncio.create_task(grammars.compile(schema)) for schema in schemas]
    await asyncio.sleep(0)
    with pytest.raises(TooManySchemas):
        await grammars.compile('{"const": "one more"}')
    assert await grammars.compile("{}") is known
    checks.gate.set()
    await asyncio.gather(*waiting)
    grammars.close()


@pytest.mark.parametrize(
    ("stop_ids", "schema", "words"),
    [
        (frozenset({256}), json.dumps({"title": "x" * SCHEMA_BYTES}), "larger than 32768 bytes"),
        (frozenset(), "{}", "model cannot be bound"),
    ],
)
async def test_what_is_refused_without_compiling(
    tokenizer: Any, stop_ids: frozenset[int], schema: str, words: str
) -> None:
    checks = Checks()
    grammars = Grammars(tokenizer, 257, stop_ids, checks)
    with pytest.raises(SchemaError, match=words):
        await grammars.compile(schema)
    assert checks.calls == 0
    grammars.close()


async def test_tokens_beyond_the_mask_are_never_picked(grammars: Grammars) -> None:
    # Embeddings are often padded: the model has more logits than the tokenizer has tokens.
    logits = torch.zeros(1, 320)
    logits[0, 300] = random.Random(1).uniform(50, 60)
    one = request(await grammars.compile('{"type": "object"}'), 0)
    assert pick(logits, [one])[0].token < 257
