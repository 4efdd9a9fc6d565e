"""Several ranks say what one says; what cannot be split is refused; a lost rank is the shard's end, with the reason."""

import signal
import socket
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, Phi3Config, PretrainedConfig, PreTrainedTokenizerFast

from support import parity
from support.llamas import CONFIGS as LLAMAS
from support.llamas import make
from tokenpool_engine.compute import group
from tokenpool_engine.compute.orders import Compute, Load, MakeCache, Order, Stop, decode, encode
from tokenpool_engine.compute.parallel import Leading, Led
from tokenpool_engine.compute.plan import local_heads, refuse_too_few_gpus, refuse_unsplittable
from tokenpool_engine.compute.rank import ORPHANED
from tokenpool_engine.compute.ranks import Ranks
from tokenpool_engine.compute.rows import Rows, Span
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.failure import Reason, StartError

# One of each kind of plan: heads cut or gathered, projections apart or fused, experts; and a window, tied embeddings.
SPLITTABLE = ["llama, tied embeddings", "qwen3", "mistral, window", "gpt-neox", "phi3", "mixtral", "qwen3-moe"]
PLAY = parity.PLAYS["chunked"]


ROWS = Rows(array("i", [7, 1, 2]), (Span(0, 1, 41, 0), Span(1, 2, 8, 3)), array("i", [3, 5, 9, 1]), array("i", [0, 2]))


@pytest.fixture
def led() -> Iterator[Led]:
    led = Led(2, threads=1)
    yield led
    led.close()


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    ranks = Ranks(2, threads=1)
    yield ranks
    ranks.close()
    group.leave()


def answers(led: Led, name: str, folder: Path, tokenizer: PreTrainedTokenizerFast) -> dict[str, list[int]]:
    """What two ranks say, from weights in a folder."""
    parity.model(name).reference.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded = led.load(folder, "float32")
    runner = Runner(led.stock(loaded, 128, parity.PAGE_TOKENS))
    return parity.play(runner, PLAY)


def test_two_ranks_say_what_generate_says(led: Led, tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    said = {name: answers(led, name, tmp_path / str(at), tokenizer) for at, name in enumerate(SPLITTABLE)}
    assert said == {name: parity.wanted(parity.model(name), PLAY) for name in SPLITTABLE}


def test_a_rank_that_cannot_load_gives_its_reason(ranks: Ranks, tmp_path: Path) -> None:
    ranks.join()
    ranks.tell(Load(str(tmp_path), "auto"))
    with pytest.raises(StartError, match=r"^ModelNotFound: rank 1 of 2 failed: .* has no config.json"):
        ranks.answered()


def test_a_rank_that_dies_before_it_joined_ends_the_wait(ranks: Ranks) -> None:
    ranks.processes[0].kill()
    with pytest.raises(StartError, match=r"^RankLost: rank 1 of 2 was killed by SIGKILL; the shard cannot go on"):
        ranks.join()


def test_a_rank_that_dies_is_noticed_while_work_can_never_end(ranks: Ranks) -> None:
    told: SimpleQueue[StartError] = SimpleQueue()
    ranks.watch(told.put)
    with pytest.raises(StartError, match=r"^RankLost: rank 1 of 2 was killed by SIGKILL"):
        ranks.guard(lambda: (ranks.processes[0].send_signal(signal.SIGKILL), Event().wait()))
    assert told.get(timeout=5).reason == "RankLost"


class FakeRanks:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def tell(self, order: Order) -> None:
        self.told.append(order)

    def fail(self, error: Exception) -> None:
        self.told.append(str(error))


def test_a_step_that_fails_on_rank_0_is_the_end_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("device fault")

    monkeypatch.setattr(Stock, "logits", fault)
    ranks: Any = FakeRanks()
    leading = Leading(ranks, make(LLAMAS["llama"]), 1, 32)
    with pytest.raises(RuntimeError, match="device fault"):
        leading.logits(ROWS)
    assert ranks.told == [Compute(ROWS), "device fault"]


def test_the_first_loss_counts_and_late_watchers_hear_of_it(ranks: Ranks) -> None:
    told: SimpleQueue[StartError] = SimpleQueue()
    ranks.lose(StartError(Reason.RANK_LOST, "one"))
    ranks.lose(StartError(Reason.RANK_LOST, "two"))
    ranks.watch(told.put)
    assert str(told.get_nowait()) == "RankLost: one"
    assert told.empty()


def test_a_rank_does_not_outlive_rank_0_even_while_it_waits_for_it(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    arguments = map(str, (theirs.fileno(), 1, 2, 1, tmp_path / "meeting"))
    command = [sys.executable, "-m", "tokenpool_engine.compute.rank", *arguments]
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL) as rank:
        theirs.close()
        # It is there, and now waits for rank 0 to join.
        assert ours.recv(64)
        ours.close()
        assert rank.wait(20) == ORPHANED


@pytest.mark.parametrize(
    ("config", "size", "words"),
    [
        (GPT2Config(), 2, "no plan to split gpt2; set spec.shards.tensorParallel to 1"),
        (
            LlamaConfig(**parity.GROUPED),
            4,
            "4 attention heads and 2 key-value heads of llama are not divisible by 4; "
            "set spec.shards.tensorParallel to 1 or 2",
        ),
        (LlamaConfig(**{**parity.GROUPED, "num_key_value_heads": 1}), 2, "set spec.shards.tensorParallel to 1$"),
    ],
)
def test_what_cannot_be_split_is_refused(config: PretrainedConfig, size: int, words: str) -> None:
    with pytest.raises(StartError, match=f"^TensorParallelImpossible: .*{words}"):
        refuse_unsplittable(config, size)


@pytest.mark.parametrize(("config", "size"), [(LlamaConfig(**parity.GROUPED), 2), (Phi3Config(), 5)])
def test_what_can_be_split_is_not(config: PretrainedConfig, size: int) -> None:
    refuse_unsplittable(config, size)


@pytest.mark.parametrize("gpus", [1, 2])
def test_each_rank_has_a_gpu(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    refuse_too_few_gpus(gpus)
    with pytest.raises(StartError, match=rf"tensorParallel is {gpus + 1} but the shard sees {gpus} GPUs; ask for"):
        refuse_too_few_gpus(gpus + 1)


@pytest.mark.parametrize(
    ("plan", "size", "heads"),
    [
        ({"model.layers.*.self_attn.k_proj": "colwise"}, 2, 4),
        ({"model.layers.*.self_attn.k_proj": "colwise_gather_output"}, 2, 8),
        ({"model.layers.*.mlp.up_proj": "colwise"}, 2, 8),
        ({"model.layers.*.self_attn.k_proj": "colwise"}, None, 8),
    ],
)
def test_heads_of_a_rank(plan: dict[str, str], size: int | None, heads: int) -> None:
    assert local_heads(SimpleNamespace(tp_plan=plan, tp_size=size), 8) == heads


@pytest.mark.parametrize(
    "order", [Load("/a", "auto"), Load("/a", "auto", "high", True), MakeCache(64, 8), Compute(ROWS), Stop()]
)
def test_orders_arrive_as_they_were_given(order: Order) -> None:
    assert decode(encode(order)) == order
