"""The GPU path on a GPU: what the other files test of it on the CPU, and what only a GPU can do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PretrainedConfig

from support.llamas import CONFIGS, make, mixed_steps
from tokenpool_engine import assembly
from tokenpool_engine.cache import Ledger
from tokenpool_engine.compute.graphs import Graphed
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import read
from tokenpool_engine.compute.rows import lay_out
from tokenpool_engine.compute.runner import Model, Runner
from tokenpool_engine.compute.staging import Staging
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.request import Request, Sampling
from tokenpool_engine.scheduler import Scheduler, Slice, Step
from tokenpool_engine.settings import Serve
from tokenpool_engine.shard import Shard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: NOTHING of the GPU path has been run"),
]

CUDA = torch.device("cuda")
PAGE = 32


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Products that are compared are not rounded."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def decoding() -> Step:
    """Two requests in pages that `mixed_steps` has filled."""
    long, short = (Request(str(n), tuple(range(1, 1 + size)), 8) for n, size in enumerate((100, 8)))
    return Step((Slice(short, 7, 8, True, (1,)), Slice(long, 99, 100, True, (7, 2, 9, 0))))


def steps() -> list[Step]:
    return [*mixed_steps(), decoding(), decoding()]


def on_gpu(config: PretrainedConfig, dtype: torch.dtype) -> list[Model]:
    """Every way to compute it there."""
    model = make(config, dtype).to(CUDA)
    stock = Stock(model, 10, PAGE)
    stock.logits(lay_out(next(mixed_steps()), PAGE))
    llama = read(model, stock.windows, 512)
    return [stock, Lean(llama, 10, PAGE), Graphed(llama, 10, PAGE, 4)]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_logits_are_those_of_the_cpu(config: PretrainedConfig, dtype: torch.dtype, tolerance: float) -> None:
    cpu = Stock(make(config, dtype), 10, PAGE)
    wanted = [cpu.logits(lay_out(step, PAGE)) for step in steps()]
    for model in on_gpu(config, dtype):
        for step, logits in zip(steps(), wanted, strict=True):
            found = model.logits(lay_out(step, PAGE)).cpu()
            torch.testing.assert_close(found, logits, rtol=0, atol=tolerance * float(logits.std()) * 4)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_a_replayed_step_is_the_step(config: PretrainedConfig) -> None:
    _, lean, graphed = on_gpu(config, torch.bfloat16)
    assert isinstance(graphed, Graphed)
    for step in steps():
        rows = lay_out(step, PAGE)
        wanted = lean.logits(rows)
        torch.testing.assert_close(graphed.logits(rows), wanted, rtol=0, atol=0.05 * float(wanted.std()) * 4)
        assert graphed.best(rows) == graphed.logits(rows).argmax(dim=-1).tolist()


def test_integers_arrive_though_their_lane_is_soon_used_again() -> None:
    staging, sums = Staging(CUDA), []
    for turn in range(50):
        size = 1 + turn * 401
        numbers, marks = staging.send([torch.full((size,), turn), torch.tensor([size])])
        sums.append(numbers.sum() * marks)
    assert [int(total) for total in sums] == [turn * (1 + turn * 401) ** 2 for turn in range(50)]


def answers(model: Model, requests: list[Request]) -> list[list[int]]:
    ledger, runner = Ledger(32, PAGE), Runner(model)
    scheduler = Scheduler(ledger, 48, 4)
    for request in requests:
        scheduler.submit(request)
    while not scheduler.is_idle:
        step = scheduler.plan()
        scheduler.commit(step, runner.run(step))
    return [request.output for request in requests]


def asked() -> list[Request]:
    return [Request(str(n), tuple(range(1, 1 + size)), 20, Sampling(0.0)) for n, size in enumerate((3, 90, 33, 64, 7))]


def test_greedy_answers_are_those_of_the_cpu() -> None:
    config = CONFIGS["llama"]
    wanted = answers(Stock(make(config), 32, PAGE), asked())
    model = make(config).to(CUDA)
    assert answers(Graphed(read(model, {}, 512), 32, PAGE, 4), asked()) == wanted


def test_a_shard_sizes_its_cache_by_measurement_and_computes(tiny_model: Path) -> None:
    settings = Serve(tiny_model, "m", None, 8, None, None, "bfloat16", None, 1, 5, 4096, "127.0.0.1", 0, 0)
    parts = assembly.build(settings, Shard("m"))
    # A tiny model's cache is bounded by what its sequences can use, not by the GPU.
    assert parts.metrics.kv_tokens_capacity == 8 * 512
