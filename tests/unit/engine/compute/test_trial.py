"""The steps by which a GPU's memory is measured are as large as steps get, and can be computed in one page."""

import pytest
import torch

from support.llamas import CONFIGS, make
from tokenpool_engine.compute import padded, pages, trial
from tokenpool_engine.compute.draw import draw
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.compute.trial import FREE, largest

PAGE = 32


@pytest.mark.parametrize(
    ("budget", "sequences", "length", "chunk", "decode"),
    [
        (1024, 64, 131_072, (1024, 130_048), (64, 4095)),
        (1024, 8, 131_072, (1024, 130_048), (8, 32_767)),
        (512, 64, 300, (300, 0), (64, 287)),
        (16, 16, 16, (16, 0), (16, 15)),
    ],
)
def test_the_largest_steps(
    budget: int, sequences: int, length: int, chunk: tuple[int, int], decode: tuple[int, int]
) -> None:
    prompt, singles = largest(budget, sequences, length, PAGE)
    assert [(span.size, span.start) for span in prompt.spans] == [chunk]
    assert (len(prompt.ids), prompt.sample_rows.tolist()) == (chunk[0], [chunk[0] - 1])
    assert {(span.size, span.start) for span in singles.spans} == {(1, decode[1])}
    assert len(singles.ids) == len(singles.sample_rows) == decode[0]
    held = decode[1] // PAGE + 1
    assert held * decode[0] <= padded.MOST_GATHERED
    assert {span.pages_at for span in singles.spans} == {held * row for row in range(decode[0])}


@pytest.mark.parametrize("name", ["llama", "mistral with a sliding window"])
def test_they_can_be_computed_in_one_page(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(pages, "PADDED_DEVICES", frozenset({"cpu"}))
    stock = Stock(make(CONFIGS[name]), 1, PAGE)
    for rows in largest(64, 4, 200, PAGE):
        logits = stock.logits(rows)
        assert bool(torch.isfinite(logits).all())
        assert len(draw(logits, [FREE] * len(rows.sample_rows))) == len(rows.sample_rows)


def test_what_a_step_takes_is_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"memory_allocated": 1000, "max_memory_allocated": 1700, "reset_peak_memory_stats": None}
    for name, value in taken.items():
        monkeypatch.setattr(torch.cuda, name, lambda _device, value=value: value)
    model = make(CONFIGS["llama"])
    loaded = trial.Loaded(model, None, frozenset(), 200, torch.device("cpu"))
    assert trial.step_bytes(loaded, budget=64, sequences=4, length=200, page_tokens=PAGE) == 700
