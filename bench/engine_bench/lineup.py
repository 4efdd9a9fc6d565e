"""Who takes part? Engines by the plan's keys; one that cannot be had is a text that says why."""

import os
from pathlib import Path

import peers
from engine_bench import engines
from engine_bench.engines import Engine
from engine_bench.plan import BUDGETS, OURS, SERVE, VLLM
from peers.environments import PeerError


def ours() -> dict[str, Engine]:
    """Our engine in all the ways that the plan asks for."""
    half = str(max(1, len(os.sched_getaffinity(0)) // 2))
    named = {
        OURS: engines.ours(),
        "ours-int8": engines.ours("--quantization", "int8", name="ours, int8"),
        "ours-two-shards": engines.ours("--threads", half, name="ours, two shards", servers=2),
    }
    named |= {f"ours-{way}": engines.ours(name=f"ours, {way}") for way in ("one-at-a-time", "static", "dynamic")}
    return named | {
        f"ours-budget-{budget}": engines.ours("--token-budget", str(budget), name=f"ours, budget {budget}")
        for budget in BUDGETS
    }


def everyone(*, install: bool) -> dict[str, Engine | str]:
    """Our engine and the peers; without `install` only those peers that are in the cache."""
    found: dict[str, Engine | str] = dict(ours())
    for key, peer, engine in (
        (VLLM, peers.VLLM, engines.vllm),
        (SERVE, peers.TRANSFORMERS_SERVE, engines.transformers_serve),
    ):
        place = place_of(peer, install=install)
        found[key] = place if isinstance(place, str) else engine(place)
    return found


def place_of(peer: peers.Peer, *, install: bool) -> Path | str:
    """Where the peer is, or why it is nowhere."""
    if not install:
        return peers.find(peer) or f"{peer.name} is not installed yet"
    try:
        return peers.install(peer)
    except (PeerError, RuntimeError) as error:
        print(error, flush=True)
        return f"{peer.name} cannot be installed here"
