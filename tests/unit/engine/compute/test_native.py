"""The compiled kernel computes what the lean loop computes; skipped, and said so, where it cannot run."""

from collections.abc import Iterator

import pytest
import torch
from transformers import LlamaConfig

from support.llamas import CONFIGS, SIZES, make, mixed_steps
from tokenpool_engine.compute import native
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import Llama, read
from tokenpool_engine.compute.native import DOT, FMA, Native, Unsuitable
from tokenpool_engine.compute.rows import lay_out
from tokenpool_engine.compute.selfcheck import distance
from tokenpool_engine.compute.stock import Stock

try:
    native.load_kernel()
except Unsuitable as reason:
    pytest.skip(f"no compiled kernel here: {reason}", allow_module_level=True)

KINDS = [FMA] + ([DOT] if "avx512_bf16" in native.cpu_flags() else [])


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=list(CONFIGS))
def llama(request: pytest.FixtureRequest) -> Llama:
    model = make(request.param)
    stock = Stock(model, 10, 32)
    stock.logits(lay_out(next(mixed_steps()), 32))
    return read(model, stock.windows, 512)


@pytest.fixture
def opened() -> Iterator[list[Native]]:
    models: list[Native] = []
    yield models
    for model in models:
        model.close()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("kind", "tolerance"), [(kind, {FMA: 0.012, DOT: 0.02}[kind]) for kind in KINDS])
def test_logits_are_those_of_the_lean_loop(
    llama: Llama, opened: list[Native], threads: int, kind: int, tolerance: float
) -> None:
    lean = Lean(llama, 10, 32)
    opened.append(found := Native(llama, 10, threads, 256, kind=kind))
    for step in mixed_steps():
        rows = lay_out(step, 32)
        wanted, logits = lean.logits(rows), found.logits(rows)
        assert [distance(one, other) < tolerance for one, other in zip(logits, wanted, strict=True)] == [True] * len(
            wanted
        )
        assert found.best(rows) == logits.argmax(dim=-1).tolist()


def test_int8_is_near_and_a_row_does_not_depend_on_its_neighbours(llama: Llama, opened: list[Native]) -> None:
    lean = Lean(llama, 10, 32)
    opened.append(found := Native(llama, 10, 2, 256, int8=True))
    alone, together = [], []
    for step in mixed_steps():
        wanted, logits = lean.logits(lay_out(step, 32)), found.logits(lay_out(step, 32))
        together += list(logits)
        assert all(distance(one, other) < 0.1 for one, other in zip(logits, wanted, strict=True))
    for step in mixed_steps():
        for part in step.slices:
            alone += list(found.logits(lay_out(type(step)((part,)), 32)))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_a_row_does_not_depend_on_its_neighbours(llama: Llama, opened: list[Native]) -> None:
    opened.append(found := Native(llama, 10, 2, 256))
    together = [row for step in mixed_steps() for row in found.logits(lay_out(step, 32))]
    alone = [
        row for step in mixed_steps() for part in step.slices for row in found.logits(lay_out(type(step)((part,)), 32))
    ]
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def make_llama(**change: object) -> Llama:
    return read(make(LlamaConfig(**{**SIZES, **change})), {}, 512)


def test_sizes_that_fill_no_panels_are_refused() -> None:
    with pytest.raises(Unsuitable, match=r"inner size 80: no multiple of 32"):
        Native(make_llama(intermediate_size=80), 10, 1, 64)


def test_logits_that_are_no_numbers_fail_the_step_and_cleared_pages_are_clean(opened: list[Native]) -> None:
    llama = make_llama()
    opened.append(found := Native(llama, 10, 1, 256))
    first, *_ = mixed_steps()
    clean = found.logits(lay_out(first, 32))
    for pages in found._values:
        pages.fill_(float("nan"))
    with pytest.raises(ValueError, match="are not numbers"):
        found.best(lay_out(list(mixed_steps())[3], 32))
    found.clear(list(range(10)))
    assert torch.equal(found.logits(lay_out(first, 32)), clean)


def test_a_step_of_too_many_rows_is_refused(opened: list[Native]) -> None:
    opened.append(found := Native(make_llama(), 10, 1, 50))
    with pytest.raises(ValueError, match="a step of 74 rows; 50 were agreed"):
        found.best(lay_out(next(mixed_steps()), 32))


def test_a_position_beyond_the_known_angles_is_refused(opened: list[Native]) -> None:
    opened.append(found := Native(read(make(LlamaConfig(**SIZES)), {}, 96), 10, 1, 256))
    last = list(mixed_steps())[3]
    with pytest.raises(ValueError, match="a position beyond the 96 that were agreed"):
        found.best(lay_out(last, 32))


def test_a_missing_kernel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "LIBRARY", native.LIBRARY.with_name("nowhere.so"))
    with pytest.raises(Unsuitable, match="cannot be loaded"):
        native.load_kernel()
