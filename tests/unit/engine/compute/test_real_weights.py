"""SmolLM2's own weights in float32: greedy answers are those of `generate`, token for token, however requests meet."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from support import parity
from tokenpool_engine.compute import llama, native, selfcheck
from tokenpool_engine.compute.choose import Room, choose
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.loader import Loaded, load
from tokenpool_engine.compute.native import Native, Unsuitable
from tokenpool_engine.compute.parallel import Alone, Led
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.request import Request, Sampling

pytestmark = pytest.mark.model

STORY = "Once upon a time, in a small village by the sea, there lived a fox that wanted to learn how to read. One day"
TEXTS = ["The capital of France is", f"{STORY} she met", f"{STORY} the old", "1, 2, 3,", "def fibonacci(n):\n"]
TOKENS, PAGES = 24, 128
# Waves of texts by number, budget, pages; then whether pages are shared, and whether a request has to give way.
PLAYS = {
    "alone": ([[0]], 512, PAGES, False, False),
    "batched": ([[0, 1, 3, 4]], 512, PAGES, False, False),
    "in chunks": ([[0, 1, 3, 4]], 7, PAGES, False, False),
    "a prefix shared": ([[1], [2, 0]], 512, PAGES, True, False),
    "few pages": ([[1, 0, 3, 4]], 24, 9, True, True),
}


@cache
def loaded(folder: Path) -> Loaded:
    return load(folder, "float32")


@cache
def wanted(folder: Path) -> list[list[int]]:
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return [parity.generate(reference, prompt(folder, number), TOKENS) for number in range(len(TEXTS))]


def prompt(folder: Path, number: int) -> tuple[int, ...]:
    return tuple(loaded(folder).tokenizer(TEXTS[number])["input_ids"])


def check(folder: Path, model: Any, title: str) -> None:
    waves, budget, pages, shares, preempts = PLAYS[title]
    asked = [[Request(str(n), prompt(folder, n), TOKENS, Sampling(0.0)) for n in wave] for wave in waves]
    scheduler = parity.drive(Runner(model), asked, budget, pages)
    said = {request.id: request.output for wave in asked for request in wave}
    assert said == {number: wanted(folder)[int(number)] for number in said}
    assert (scheduler.ledger.shared_tokens > 0, scheduler.preemptions > 0) == (shares, preempts)


@pytest.mark.parametrize("title", PLAYS)
def test_the_models_own_forward(smollm2: Path, title: str) -> None:
    check(smollm2, Stock(loaded(smollm2).model, PAGES, parity.PAGE_TOKENS), title)


@pytest.mark.parametrize("title", PLAYS)
def test_the_lean_loop(smollm2: Path, title: str) -> None:
    found = loaded(smollm2)
    proof = selfcheck.prove(Stock(found.model, selfcheck.PAGES, 32), found.model.config)
    check(smollm2, Lean(llama.read(found.model, proof.windows, 512), PAGES, parity.PAGE_TOKENS), title)


def test_three_ranks(smollm2: Path) -> None:
    # Two do not divide its three key-value heads.
    led = Led(3, threads=1)
    try:
        check(smollm2, led.stock(led.load(smollm2, "float32"), PAGES, parity.PAGE_TOKENS), "batched")
    finally:
        led.close()


def test_bfloat16_takes_the_kernel(smollm2: Path) -> None:
    try:
        native.load_kernel()
    except Unsuitable as reason:
        pytest.skip(f"no compiled kernel here: {reason}")
    room = Room(pages=8, positions=512, threads=1, max_rows=64, sequences=4, cuda_graphs=False)
    model = choose(load(smollm2, "bfloat16"), room, Alone())
    model.close()
    assert isinstance(model, Native)
