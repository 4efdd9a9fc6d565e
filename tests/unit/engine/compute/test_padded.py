"""Attention as GPUs compute it gives what attention as CPUs compute it gives; both run here on the CPU."""

import pytest
import torch
from transformers import PretrainedConfig

from support.llamas import CONFIGS, make, mixed_steps
from tokenpool_engine.compute import padded, pages
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import join, read, stacked
from tokenpool_engine.compute.padded import groups
from tokenpool_engine.compute.rows import lay_out
from tokenpool_engine.compute.stock import Stock


@pytest.mark.parametrize("most_gathered", [padded.MOST_GATHERED, 1])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 0.05)])
def test_logits_do_not_depend_on_how_attention_is_computed(
    monkeypatch: pytest.MonkeyPatch,
    config: PretrainedConfig,
    dtype: torch.dtype,
    tolerance: float,
    most_gathered: int,
) -> None:
    model = make(config, dtype)
    stock = Stock(model, 10, 32)
    wanted = [stock.logits(lay_out(step, 32)) for step in mixed_steps()]
    monkeypatch.setattr(pages, "PADDED_DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr(padded, "MOST_GATHERED", most_gathered)
    for subject in (Stock(model, 10, 32), Lean(read(model, stock.windows, 512), 10, 32)):
        for step, logits in zip(mixed_steps(), wanted, strict=True):
            found = subject.logits(lay_out(step, 32))
            torch.testing.assert_close(found, logits, rtol=0, atol=tolerance * float(logits.std()) * 4)


@pytest.mark.parametrize(
    ("blocks", "runs"),
    [
        ([], []),
        ([1, 1, 1], [3]),
        ([4, 4], [2]),
        ([1, 5, 1], [1, 1, 1]),
        ([9, 1, 2], [1, 2]),
        ([1, 2, 3, 3], [2, 2]),
    ],
)
def test_tables_are_cut_where_they_would_gather_too_much(
    monkeypatch: pytest.MonkeyPatch, blocks: list[int], runs: list[int]
) -> None:
    monkeypatch.setattr(padded, "MOST_GATHERED", 8)
    found = list(groups(blocks))
    assert [part.stop - part.start for part in found] == runs
    assert [number for part in found for number in blocks[part]] == blocks


def test_joined_weights_have_no_second_copy() -> None:
    parts = [torch.nn.Linear(4, size, bias=False) for size in (3, 5)]
    wanted = torch.cat([part.weight.data for part in parts])
    whole = join(parts, share=True)
    assert torch.equal(whole, wanted)
    assert [part.weight.data_ptr() for part in parts] == [whole.data_ptr(), whole[3:].data_ptr()]
    first, second = (part.weight.data for part in parts)
    assert stacked(first, second).data_ptr() == whole.data_ptr()
    assert torch.equal(stacked(first, second), wanted)


def test_weights_that_lie_apart_are_copied() -> None:
    whole = torch.arange(24.0).view(6, 4)
    first, second = whole[:2], whole[3:]
    assert torch.equal(stacked(first, second), torch.cat((first, second)))
    assert torch.equal(stacked(second, first), torch.cat((second, first)))
