"""Recorded steps: which shapes there are, how steps are filled up to them, and that answers stay what they are.

Instead of a recording the CPU computes the very step that would be recorded, from the same places in memory.
"""

from array import array
from collections.abc import Iterator

import pytest
import torch
from transformers import PretrainedConfig

from support.llamas import CONFIGS, make, mixed_steps
from tokenpool_engine.compute.graphs import Graphed, Launch
from tokenpool_engine.compute.ladder import Rung, fill, rung_for, rungs
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import Llama, read
from tokenpool_engine.compute.rows import Rows, Span, lay_out
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.request import Request, Sampling
from tokenpool_engine.scheduler import Slice, Step

PAGE = 32


def decoding(*starts: int) -> Rows:
    """One token each of requests at these positions, whose pages are counted up from 10."""
    pages, spans = array("i"), []
    for row, start in enumerate(starts):
        spans.append(Span(row, 1, start, len(pages)))
        pages.extend(range(10 + len(pages), 10 + len(pages) + start // PAGE + 1))
    return Rows(array("i", range(100, 100 + len(starts))), tuple(spans), pages, array("i", range(len(starts))))


def test_the_ladder_begins_with_its_largest_rung_and_reaches_both_ends() -> None:
    found = rungs(max_rows=48, max_blocks=40, most_gathered=48 * 40)
    assert found[0] == (48, 40)
    assert {rung.rows for rung in found} == {1, 2, 4, 8, 16, 32, 48}
    assert {rung.blocks for rung in found} == {4, 16, 40}
    gathered = [rung.rows * rung.blocks for rung in found]
    assert gathered == sorted(gathered, reverse=True)
    assert len(set(found)) == 7 * 3


@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (1, 3), (64, 1), (5, 4096)])
def test_no_rung_gathers_too_much(rows: int, blocks: int) -> None:
    found = rungs(rows, blocks, most_gathered=512)
    assert found
    assert all(rung.rows * rung.blocks <= 512 for rung in found)
    assert all(rung.rows <= rows and rung.blocks <= blocks for rung in found)


@pytest.mark.parametrize(
    ("starts", "rung"),
    [
        ((0,), (1, 4)),
        ((127,), (1, 4)),
        ((128,), (1, 16)),
        ((0, 500, 3), (4, 16)),
        ((0,) * 6, (6, 4)),
        ((0,) * 7, None),
        ((16 * PAGE,), None),
    ],
)
def test_a_step_takes_the_smallest_rung_that_holds_it(starts: tuple[int, ...], rung: tuple[int, int] | None) -> None:
    assert rung_for(decoding(*starts), PAGE, rungs(6, 16, 96)) == rung


def test_prompts_take_none() -> None:
    rows = Rows(array("i", [1, 2, 3]), (Span(0, 1, 0, 0), Span(1, 2, 0, 1)), array("i", [0, 1]), array("i", [0]))
    assert rung_for(rows, PAGE, rungs(8, 16, 999)) is None


def test_a_step_is_filled_up_with_rows_of_the_scratch_page() -> None:
    packed = fill(decoding(40, 3), Rung(4, 3), PAGE, scratch=99)
    assert len(packed) == Rung(4, 3).size
    assert packed[:4].tolist() == [100, 101, 0, 0]
    assert packed[4:8].tolist() == [40, 3, 0, 0]
    assert packed[8:].tolist() == [10, 11, 10, 12, 12, 12, 99, 99, 99, 99, 99, 99]


def as_recorded(launch: Launch) -> Launch:
    """What stands in for a recording."""
    return launch


def loops(config: PretrainedConfig, dtype: torch.dtype = torch.float32, max_rows: int = 4) -> tuple[Lean, Graphed]:
    model = make(config, dtype)
    stock = Stock(model, 10, PAGE)
    stock.logits(lay_out(next(mixed_steps()), PAGE))
    llama: Llama = read(model, stock.windows, 512)
    return Lean(llama, 10, PAGE), Graphed(llama, 10, PAGE, max_rows, as_recorded)


def steps() -> Iterator[Step]:
    """Mixed steps, then three requests that decode, one of them without sampling."""
    yield from mixed_steps()
    long, short = (Request(str(n), tuple(range(1, 1 + size)), 8) for n, size in enumerate((100, 8)))
    yield Step((Slice(short, 7, 8, True, (1,)), Slice(long, 99, 100, True, (7, 2, 9, 0))))
    odd = Request("odd", tuple(range(1, 40)), 8)
    yield Step(
        (Slice(short, 7, 8, True, (1,)), Slice(odd, 33, 34, False, (4, 3)), Slice(long, 99, 100, True, (7, 2, 9, 0)))
    )


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 0.05)])
def test_logits_are_those_of_the_lean_loop(config: PretrainedConfig, dtype: torch.dtype, tolerance: float) -> None:
    lean, graphed = loops(config, dtype)
    for step in steps():
        rows = lay_out(step, PAGE)
        wanted, found = lean.logits(rows), graphed.logits(rows)
        assert found.shape == wanted.shape
        torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.std()) * 4)
        assert graphed.best(rows) == found.argmax(dim=-1).tolist()


def test_rows_that_are_nobodys_are_counted() -> None:
    _, graphed = loops(CONFIGS["llama"])
    counts = []
    for step in steps():
        graphed.logits(lay_out(step, PAGE))
        counts.append(graphed.padded_rows)
    # What holds a chunk is not filled up; then one row of one, two of two, three of four.
    assert counts == [0, 0, 0, 0, 0, 1]
    assert Runner(graphed).padded_rows == 1


def test_steps_beyond_the_ladder_are_computed_without_recording() -> None:
    lean, graphed = loops(CONFIGS["llama"], max_rows=2)
    *_, last = steps()
    rows = lay_out(last, PAGE)
    torch.testing.assert_close(graphed.logits(rows), lean.logits(rows))
    assert graphed.padded_rows == 0


def test_logits_that_are_no_numbers_fail_the_step_and_cleared_pages_are_clean() -> None:
    model = make(CONFIGS["llama"])
    llama = read(model, {}, 512)
    graphed = Graphed(llama, 10, PAGE, 4, as_recorded)
    request = Request("r", tuple(range(1, 40)), 8, Sampling(0.0))
    whole = Step((Slice(request, 0, 39, True, (3, 5)),))
    runner = Runner(graphed)
    wanted = runner.run(whole)
    kept = llama.norm.clone()
    llama.norm.fill_(float("nan"))
    with pytest.raises(ValueError, match="not numbers"):
        runner.run(Step((Slice(request, 38, 39, True, (3, 5)),)))
    llama.norm.copy_(kept)
    assert runner.run(whole) == wanted


def test_recordings_are_given_back() -> None:
    _, graphed = loops(CONFIGS["llama"])
    graphed.close()
    with pytest.raises(KeyError):
        graphed.best(decoding(0))
