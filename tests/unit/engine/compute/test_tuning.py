"""torch's switches: as told, else as the device is best."""

from collections.abc import Iterator

import pytest
import torch

from tokenpool_engine.compute.tuning import Tuning


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark


@pytest.mark.parametrize(
    ("told", "has_gpu", "precision"),
    [(None, False, "highest"), (None, True, "high"), ("medium", True, "medium"), ("highest", True, "highest")],
)
def test_precision(monkeypatch: pytest.MonkeyPatch, told: str | None, has_gpu: bool, precision: str) -> None:
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    Tuning(told).apply()
    assert torch.get_float32_matmul_precision() == precision


@pytest.mark.parametrize("benchmark", [True, False])
def test_cudnn(benchmark: bool) -> None:
    torch.backends.cudnn.benchmark = not benchmark
    Tuning(cudnn_benchmark=benchmark).apply()
    assert torch.backends.cudnn.benchmark is benchmark
