"""Which way a model is computed on a GPU, without one: the model only says that it is there (a mock)."""

import logging
from dataclasses import replace
from typing import Any

import pytest
import torch

from support.llamas import CONFIGS, make
from tokenpool_engine.compute import choose as subject
from tokenpool_engine.compute.choose import Room, choose
from tokenpool_engine.compute.graphs import Graphed, Launch, NotRecorded
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import Llama
from tokenpool_engine.compute.loader import Loaded
from tokenpool_engine.compute.parallel import Alone
from tokenpool_engine.compute.stock import Stock

ROOM = Room(pages=10, positions=512, threads=1, max_rows=64, sequences=4, cuda_graphs=True)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """A model that says it is on a GPU; what would be recorded is computed as it is."""
    monkeypatch.setattr(subject, "Graphed", lambda *given: Graphed(*given, record=as_recorded))
    return Loaded(make(CONFIGS["llama"]), None, frozenset(), 512, torch.device("cuda"))


def as_recorded(launch: Launch) -> Launch:
    return launch


def taken(loaded: Loaded, room: Room = ROOM) -> type[Any]:
    return type(choose(loaded, room, Alone()))


def test_recorded_steps_come_first_on_a_gpu(loaded: Loaded) -> None:
    model = choose(loaded, ROOM, Alone())
    assert isinstance(model, Graphed)
    # The self-check's last step decodes two requests, on a rung of two.
    assert model.padded_rows == 0


def test_without_graphs_it_is_the_lean_loop(loaded: Loaded) -> None:
    assert taken(loaded, replace(ROOM, cuda_graphs=False)) is Lean


def test_what_cannot_be_recorded_is_computed_by_the_lean_loop(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_launch: Launch) -> Launch:
        raise NotRecorded("steps cannot be recorded as CUDA graphs: no memory")

    monkeypatch.setattr(subject, "Graphed", lambda *given: Graphed(*given, record=refuse))
    with caplog.at_level(logging.WARNING):
        assert taken(loaded) is Lean
    assert "lean loop in CUDA graphs: steps cannot be recorded as CUDA graphs: no memory" in caplog.text


def test_a_recording_that_does_nothing_is_found_out(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subject, "Graphed", lambda *given: Graphed(*given, record=lambda _launch: lambda: None))
    with caplog.at_level(logging.WARNING):
        assert taken(loaded) is Lean
    assert "lean loop in CUDA graphs: its logits are" in caplog.text


def test_when_no_loop_agrees_it_is_the_models_own_forward(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Lean):
        def head(self, x: torch.Tensor) -> torch.Tensor:
            return super().head(x).flip(-1)

    def wrong(model: Llama, pages: int, page_tokens: int, *_: object) -> Wrong:
        return Wrong(model, pages, page_tokens)

    for name in ("Graphed", "Lean"):
        monkeypatch.setattr(subject, name, wrong)
    assert taken(loaded) is Stock


def test_a_cpu_records_nothing(loaded: Loaded) -> None:
    model = Loaded(loaded.model, None, frozenset(), 512, torch.device("cpu"))
    assert taken(model) is Lean
