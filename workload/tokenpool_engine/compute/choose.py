"""Which way a model is computed: the fastest that agrees with its own Hugging Face forward."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from tokenpool_engine.compute import quality, selfcheck
from tokenpool_engine.compute.graphs import Graphed, NotRecorded
from tokenpool_engine.compute.lean import Lean
from tokenpool_engine.compute.llama import Llama, NotLlama, read
from tokenpool_engine.compute.loader import Loaded
from tokenpool_engine.compute.native import PAGE_TOKENS, Native, Unsuitable
from tokenpool_engine.compute.parallel import Alone
from tokenpool_engine.compute.runner import Model
from tokenpool_engine.compute.selfcheck import Proof
from tokenpool_engine.compute.stock import Stock
from tokenpool_engine.failure import Reason, StartError

log = logging.getLogger(__name__)

LEAST_POSITIONS: Final = selfcheck.PAGES * PAGE_TOKENS
# How far logits may be from the stock forward's, in parts of their spread. It rounds to bfloat16 after every operation
# itself; int8 is another model, whose quality is measured elsewhere: here only blunders are caught.
TOLERANCES: Final = {torch.float32: 0.01, torch.bfloat16: 0.15, torch.float16: 0.1}
INT8_TOLERANCE: Final = 0.6


@dataclass(frozen=True)
class Room:
    """What the model gets: pages of cache, positions that requests may reach, CPU threads, rows of a step and requests
    that decode in it at most, and whether steps may be recorded as CUDA graphs.
    """

    pages: int
    positions: int
    threads: int
    max_rows: int
    sequences: int
    cuda_graphs: bool


def choose(loaded: Loaded, room: Room, ranks: Alone, *, int8: bool = False) -> Model:
    """The model ready to run. Raises StartError when it cannot be computed rightly at all."""
    # What proves and measures the model needs some room too, however little requests may get.
    room = replace(room, pages=max(room.pages, selfcheck.PAGES), positions=max(room.positions, LEAST_POSITIONS))
    if ranks.size > 1:
        return _together(loaded, room, ranks, int8=int8)
    proof = selfcheck.prove(Stock(loaded.model, selfcheck.PAGES, PAGE_TOKENS), loaded.model.config)
    tolerance = INT8_TOLERANCE if int8 else TOLERANCES[loaded.model.dtype]
    reasons = []
    try:
        llama = read(loaded.model, proof.windows, room.positions)
    except NotLlama as error:
        reasons.append(f"lean loops do not compute {error}")
        log.warning("%s", reasons[-1])
    else:
        for name, make in _ways(llama, loaded, room, int8=int8):
            try:
                model = _agreeing(make(), name, proof, loaded.model.config.vocab_size, tolerance)
            except (Unsuitable, NotRecorded, Disagrees) as error:
                reasons.append(f"{name}: {error}")
                log.warning("not computing with the %s: %s", name, error)
            else:
                if int8:
                    _tell_quality(loaded, model, room)
                return model
    if int8:
        raise StartError(Reason.MODEL_UNSUPPORTED, f"quantization int8 is not possible: {'; '.join(reasons)}")
    log.info("computing with the model's own forward")
    return Stock(loaded.model, room.pages, PAGE_TOKENS)


def _together(loaded: Loaded, room: Room, ranks: Alone, *, int8: bool) -> Model:
    """On several ranks: always the model's own forward, which transformers has split."""
    if int8:
        raise StartError(Reason.MODEL_UNSUPPORTED, "quantization int8 works on one rank only; set tensorParallel to 1")
    model = ranks.stock(loaded, room.pages, PAGE_TOKENS)
    selfcheck.prove(model, loaded.model.config)
    log.info("computing with the model's own forward on %d ranks", ranks.size)
    return model


class Disagrees(Exception):
    """A way to compute whose logits are not the stock forward's."""


def _ways(llama: Llama, loaded: Loaded, room: Room, *, int8: bool) -> Iterator[tuple[str, Callable[[], Model]]]:
    """Fastest first."""
    if loaded.device.type == "cpu" and (int8 or loaded.model.dtype == torch.bfloat16):
        yield "compiled kernel", lambda: Native(llama, room.pages, room.threads, room.max_rows, int8=int8)
    if loaded.device.type == "cuda" and room.cuda_graphs and not int8:
        yield "lean loop in CUDA graphs", lambda: Graphed(llama, room.pages, PAGE_TOKENS, room.sequences)
    if not int8:
        yield "lean loop", lambda: Lean(llama, room.pages, PAGE_TOKENS)


def _tell_quality(loaded: Loaded, model: Model, room: Room) -> None:
    """What int8 costs is another number for each model; whoever chose it should see it."""
    if room.pages * PAGE_TOKENS < quality.TOKENS or room.max_rows < quality.AT_ONCE:
        log.warning("the cache or the token budget is too small to measure the quality of int8")
        return
    reference = Stock(loaded.model, -(-quality.TOKENS // PAGE_TOKENS), PAGE_TOKENS)
    found = quality.measure(reference, model, loaded.tokenizer, loaded.model.config.vocab_size)
    log.info("int8 against the model's own forward: %s", found)


def _agreeing(model: Any, name: str, proof: Proof, vocabulary: int, tolerance: float) -> Model:
    """The model, if its logits are right. Raises Disagrees."""
    far = selfcheck.difference(model, proof, vocabulary)
    if not far < tolerance:
        model.close()
        raise Disagrees(f"its logits are {far:.0%} off those of the model's own forward")
    log.info("computing with the %s, whose logits are within %.2f %% of the model's own forward", name, 100 * far)
    return model  # type: ignore[no-any-return]
