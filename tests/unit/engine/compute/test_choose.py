"""The fastest way that computes rightly is taken, and the log says which one, and why not a faster one."""

import logging

import pytest
import torch
from transformers import LlamaConfig

from support.llamas import SIZES, make
from tokenpool_engine.compute import native
from tokenpool_engine.compute.choose import Room, choose
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.loader import Loaded
from tokenpool_engine.compute.native import Native, Unsuitable
from tokenpool_engine.compute.parallel import Alone

ROOM = Room(pages=8, positions=512, threads=1, max_rows=64, sequences=4, cuda_graphs=False)


def tiny(dtype: torch.dtype, **change: object) -> Loaded:
    model = make(LlamaConfig(**{**SIZES, **change})).to(dtype)
    return Loaded(model, None, frozenset(), 512, torch.device("cpu"))


def needs_kernel() -> None:
    try:
        native.load_kernel()
    except Unsuitable as reason:
        pytest.skip(f"no compiled kernel here: {reason}")


def test_float32_takes_the_lean_loop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert isinstance(choose(tiny(torch.float32), ROOM, Alone()), Lean)
    assert "computing with the lean loop, whose logits are within 0.00 %" in caplog.text


def test_why_the_kernel_is_not_used_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert isinstance(choose(tiny(torch.bfloat16, intermediate_size=80), ROOM, Alone()), Lean)
    assert "not computing with the compiled kernel: inner size 80: no multiple of 32" in caplog.text
    assert "computing with the lean loop" in caplog.text


def test_bfloat16_takes_the_kernel(caplog: pytest.LogCaptureFixture) -> None:
    needs_kernel()
    caplog.set_level(logging.INFO)
    model = choose(tiny(torch.bfloat16), ROOM, Alone())
    model.close()
    assert isinstance(model, Native)
    assert "computing with the compiled kernel" in caplog.text
