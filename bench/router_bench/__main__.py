"""`python -m router_bench [--quick] [--repeats N] [--only PATTERN] [--strict]`: what a router costs."""

import argparse
import asyncio
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import uvloop

from cluster.progress import step
from router_bench import measure, overload, real_shards
from router_bench.lineup import EVERYBODY, Proxy, ours_bounded
from router_bench.process import LOAD_CORE, NotStarted, Running, free_port
from router_bench.score import DIRECT, OURS, as_json, rows
from scoreboard import results, table
from scoreboard.rows import Row, missed

NAME = "router"
REAL_SHARDS = "real shards"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="router_bench", description="The router beside other proxies.")
    parser.add_argument("--quick", action="store_true", help="two minutes: one round, only the proxies written in C")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (3; quick: 1)")
    parser.add_argument(
        "--only", type=re.compile, default="", metavar="PATTERN", help="names of proxies, or 'real shards'"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a must is missed")
    return parser.parse_args(arguments)


class Bench:
    """Rounds over the proxies; everything seen is kept by measure and proxy."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.seen: dict[str, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
        self.failures: dict[str, str] = {}
        quick = ("ours", "nginx", "haproxy", "envoy")
        self.proxies = [
            proxy
            for proxy in EVERYBODY
            if options.only.search(proxy.name) and (not options.quick or proxy.name in quick)
        ]

    async def round(self, shard: int) -> None:
        """Everybody once."""
        direct = await measure.paced(shard, None, self.options.seconds)
        self._note(DIRECT, first_p50=direct.first_p50_milliseconds, first_p99=direct.first_p99_milliseconds)
        for proxy in self.proxies:
            with step(proxy.name):
                try:
                    await self._visit(proxy, shard)
                except Exception as error:
                    # A peer that fails is a row that says so; ours is a failure of the run.
                    if proxy.name == OURS:
                        raise
                    self.failures[proxy.name] = f"{type(error).__name__}: {error}"
                    self._note(proxy.name, cpu_request=None)

    async def overload(self, shard: int) -> None:
        """Ours alone: the others have no queue that is bounded in tokens."""
        port = free_port()
        with step("twice what the shards can do"), tempfile.TemporaryDirectory(prefix="router-bench-") as folder:
            start = ours_bounded(Path(folder), port, shard)
            running = await asyncio.to_thread(Running, start.command, port, Path(folder) / "output", start.environment)
            try:
                await asyncio.sleep(1.0)
                found = await overload.overload(port)
                self._note(OURS, goodput=found.goodput, succeeded=found.succeeded, refused=found.refused)
            finally:
                running.end()

    async def _visit(self, proxy: Proxy, shard: int) -> None:
        port, seconds = free_port(), self.options.seconds
        with tempfile.TemporaryDirectory(prefix="router-bench-") as folder:
            start = await asyncio.to_thread(proxy.start, Path(folder), port, shard)
            running = await asyncio.to_thread(Running, start.command, port, Path(folder) / "output", start.environment)
            try:
                await asyncio.sleep(1.0)
                if not proxy.is_slow:
                    # First of all: what else it did before would stay in its memory.
                    opened = await measure.opened(port, running)
                    self._note(proxy.name, memory=opened.megabytes, largest=max(opened.by_process))
                bursts = await measure.bursts(port, running, seconds)
                self._note(proxy.name, cpu_request=bursts.cpu_microseconds, rate=bursts.requests_per_second)
                if proxy.is_slow:
                    return
                paced = await measure.paced(port, running, seconds)
                self._note(
                    proxy.name,
                    cpu_event=paced.cpu_microseconds,
                    first_p50=paced.first_p50_milliseconds,
                    first_p99=paced.first_p99_milliseconds,
                )
            finally:
                running.end()

    def _note(self, name: str, **values: float | None) -> None:
        for key, value in values.items():
            self.seen[key][name].append(value)
        told = ", ".join(f"{key} {value:.3g}" for key, value in values.items() if value is not None)
        print(f"    {name}: {told}", flush=True)


def run(options: argparse.Namespace) -> list[Row]:
    """All rounds, then the table."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {LOAD_CORE})
    began, shard, bench = time.monotonic(), free_port(), Bench(options)
    stand_in = subprocess.Popen([sys.executable, "-m", "router_bench.stand_in", str(shard)])
    try:
        repeats = 1 if options.quick else options.repeats
        time.sleep(1.0)
        for number in range(1, repeats + 1):
            print(f"round {number} of {repeats}", flush=True)
            uvloop.run(bench.round(shard))
            if options.only.search(OURS):
                uvloop.run(bench.overload(shard))
    finally:
        stand_in.kill()
        stand_in.wait()
    found = rows(bench.seen, bench.failures)
    if not options.quick and options.only.search(REAL_SHARDS):
        os.sched_setaffinity(0, cores)
        found += real_shards.run()
    path = results.write(NAME, results.result(found, seen=as_json(bench.seen), failures=bench.failures))
    print(f"\n{table.terminal([row.as_json() for row in found])}\n")
    print(f"{len(missed(found))} musts missed; {time.monotonic() - began:.0f} s; {path}")
    return found


def main() -> None:
    """Exit with 1 when a must is missed and that was asked for."""
    options = parse()
    try:
        found = run(options)
    except NotStarted as error:
        sys.exit(f"the router did not start: {error}")
    if options.strict and missed(found):
        sys.exit(1)


if __name__ == "__main__":
    main()
