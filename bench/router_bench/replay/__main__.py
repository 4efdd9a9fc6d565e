"""`python -m router_bench.replay [--quick] [--strict]`: policies on public traces, by the slowest percent."""

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router_bench.replay import traces
from router_bench.replay.choosers import Chooser, Poller, Routers, requests_on, tokens_on
from router_bench.replay.shard import SimulatedShard
from router_bench.replay.traces import Arrival
from router_bench.replay.world import Result, World
from scoreboard import results, table
from scoreboard.rows import Must, Row, missed
from tokenpool_router.control.peers import BUSY_SECONDS, SECONDS_PER_PEER
from tokenpool_router.sharding import Policy

NAME = "router-replay"
SHARDS = 8
QUICK_REQUESTS = 3000
SEEDS = (1, 2, 3)
OURS = "least tokens"

FOUR = "least tokens, four routers that ask each other"
ALONE = "least tokens, four routers that know nothing of each other"

Make = Callable[[Sequence[SimulatedShard], Sequence[float], int], Chooser]


@dataclass(frozen=True)
class Scene:
    """A trace at a speed, on shards of these speeds; `told` are the speeds that the router believes."""

    name: str
    trace: str
    times: float
    speeds: tuple[float, ...] = (1.0,) * SHARDS
    told: tuple[float, ...] = (1.0,) * SHARDS
    has_cache: bool = False


HALF = (0.5,) + (1.0,) * (SHARDS - 1)
SCENES = (
    Scene("Azure conversation", "azure_2023_conv", 5.2),
    Scene("Azure code", "azure_2023_code", 6.0),
    Scene("Mooncake", "mooncake_fast25_conversation", 1.7),
    Scene("Azure conversation, one shard at half speed", "azure_2023_conv", 4.6, HALF, HALF),
    Scene("Azure conversation, one at half speed unknown to the router", "azure_2023_conv", 4.6, HALF),
    Scene("Mooncake, one shard at half speed", "mooncake_fast25_conversation", 1.5, HALF, HALF),
    Scene("Mooncake, shards with prefix caches", "mooncake_fast25_conversation", 2.2, has_cache=True),
)


def policy(which: Policy, count: int = 1, hear_seconds: float = math.inf) -> Make:
    """The router's own sharding."""
    return lambda _shards, told, seed: Routers(which, told, count=count, hear_seconds=hear_seconds, seed=seed)


CHOOSERS: dict[str, Make] = {
    OURS: policy(Policy.LEAST_TOKENS),
    "least requests": policy(Policy.LEAST_CONNECTIONS),
    "round robin": policy(Policy.ROUND_ROBIN),
    "power of two": policy(Policy.POWER_OF_TWO),
    "prefix affinity": policy(Policy.PREFIX_AFFINITY),
    FOUR: policy(Policy.LEAST_TOKENS, 4, BUSY_SECONDS + 3 * SECONDS_PER_PEER),
    ALONE: policy(Policy.LEAST_TOKENS, 4),
    "least tokens by polls a second old": lambda shards, _told, seed: Poller(shards, tokens_on, seed),
    "least requests by polls a second old": lambda shards, _told, seed: Poller(shards, requests_on, seed),
}
MUSTS = {
    "least requests": Must("<=", 1.0),
    "least tokens by polls a second old": Must("<=", 0.5),
    "least requests by polls a second old": Must("<=", 0.5),
}


def play(scene: Scene, make: Make, arrivals: Sequence[Arrival], seed: int) -> Result:
    """One replay."""
    shards = [SimulatedShard(speed, scene.has_cache) for speed in scene.speeds]
    return World(shards, make(shards, scene.told, seed)).play(arrivals)


def scene_rows(scene: Scene, *, quick: bool) -> list[Row]:
    """All policies on one scene; values are means over seeds of the draw of arrivals and of routers."""
    recorded = traces.load(scene.trace)
    found: dict[str, list[Result]] = {name: [] for name in CHOOSERS if scene.has_cache or name != "prefix affinity"}
    for seed in SEEDS[:1] if quick else SEEDS:
        drawn = traces.spread(recorded, seed) if "mooncake" in scene.trace else recorded
        arrivals = list(traces.faster(drawn, scene.times, QUICK_REQUESTS if quick else None))
        for name, of_name in found.items():
            began = time.monotonic()
            result = play(scene, CHOOSERS[name], arrivals, seed)
            of_name.append(result)
            told = f"TTFT p50 {result.at(0.5):.3g} s, p99 {result.at(0.99):.3g} s, utilization {result.utilization:.2f}"
            print(f"  {scene.name}, {name}, seed {seed}: {told} ({time.monotonic() - began:.0f} s)", flush=True)
    return [_row(scene, name, found) for name in found if name != OURS]


def _row(scene: Scene, name: str, found: dict[str, list[Result]]) -> Row:
    ours, theirs = mean(found[OURS]), mean(found[name])
    work = f"TTFT p99, {scene.name}"
    if name in (FOUR, ALONE):
        # Here the question is what several routers cost.
        return Row(f"{work}: {name}", "s", theirs, ours, OURS, theirs / ours, Must("<=", 1.1) if name == FOUR else None)
    return Row(work, "s", ours, theirs, name, ours / theirs, MUSTS.get(name))


def mean(found: Sequence[Result]) -> float:
    """Of the slowest percent's bound."""
    return sum(result.at(0.99) for result in found) / len(found)


def main() -> None:
    """Exit with 1 when a must is missed and that was asked for."""
    parser = argparse.ArgumentParser(prog="router_bench.replay", description="Policies on public traces.")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_REQUESTS} requests, one seed")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a must is missed")
    parser.add_argument("--only", default="", help="part of a scene's name")
    options = parser.parse_args()
    found = [row for scene in SCENES if options.only in scene.name for row in scene_rows(scene, quick=options.quick)]
    path = results.write(NAME, results.result(found, mode="quick" if options.quick else "full"))
    print(f"\n{table.terminal([row.as_json() for row in found])}\n\n{len(missed(found))} musts missed; {path}")
    if options.strict and missed(found):
        sys.exit(1)


if __name__ == "__main__":
    main()
