"""`python -m engine_bench [--quick] [--repeats N] [--only PATTERN] [--strict] [--report]`."""

import argparse
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from engine_bench import plan, report, weights
from engine_bench.lineup import everyone
from engine_bench.measure import play_round
from engine_bench.observations import Observations
from engine_bench.score import rows
from scoreboard import busy, machine, results, table
from scoreboard.rows import Row, missed

NAME = "engine"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="engine_bench", description="The shard engine beside its peers.")
    parser.add_argument("--quick", action="store_true", help="about two minutes: one repeat, one model, few requests")
    parser.add_argument("--repeats", type=at_least_one, help="rounds (3; quick: 1)")
    parser.add_argument("--only", type=re.compile, default="", metavar="PATTERN", help="as in '58m (ours|vllm)$'")
    onto = parser.add_mutually_exclusive_group()
    onto.add_argument("--keep", action="store_true", help="keep what the last results have of other visits")
    onto.add_argument("--add", action="store_true", help="add rounds to the last results")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a must is missed or our engine fails")
    parser.add_argument("--report", action="store_true", help="only write docs/performance.md from the last results")
    return parser.parse_args(arguments)


def at_least_one(text: str) -> int:
    """A number of rounds."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return int(text)


def measure(options: argparse.Namespace) -> list[Row]:
    """All rounds, then the table. The file is written after every round: who stops a long run keeps what it has."""
    began = time.monotonic()
    visits = [visit for visit in (plan.quick() if options.quick else plan.full()) if options.only.search(visit.key)]
    repeats = options.repeats or (1 if options.quick else 3)
    models, engines = weights.prepare(), everyone(install=not options.quick)
    seen = earlier([] if options.add else visits) if options.keep or options.add else Observations()
    quality = None
    for number in range(1, repeats + 1):
        print(f"round {number} of {repeats}", flush=True)
        play_round(visits, engines, models, seen)
        if not options.quick and quality is None and any(seen.seen.get("58m ours-int8", [])):
            quality = weights.quality_of_int8(models["smollm2"])
        found = rows(seen, quality)
        path = results.write(NAME, content(options, found, seen))
    print(f"\n{table.terminal([row.as_json() for row in found])}\n\n{busy.warning(seen.busiest())}")
    print(f"{verdict(found)}; {time.monotonic() - began:.0f} s; {path}")
    return found


def earlier(visits: Sequence[plan.Visit]) -> Observations:
    """What the last results have of visits other than these.

    Raises:
        RuntimeError: they are another machine's.
    """
    last = results.read(NAME)
    if last["machine"] != machine.description():
        raise RuntimeError("the last results are another machine's; run without --keep and --add")
    return Observations.from_json(last["seen"]).without({visit.key for visit in visits})


def content(options: argparse.Namespace, found: Sequence[Row], seen: Observations) -> dict[str, Any]:
    """What is written to the file."""
    mode = "quick" if options.quick else "full"
    return results.result(found, mode=mode, repeats=seen.repeats(), busy=seen.busiest(), seen=seen.as_json())


def verdict(found: Sequence[Row]) -> str:
    """One sentence on all musts."""
    asked = [row for row in found if row.must]
    count = {state: sum(row.met is state for row in asked) for state in (True, False, None)}
    return f"{count[True]} musts met, {count[False]} MISSED, {count[None]} not measured"


def main() -> int:
    """Measure, or only write the page."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.report:
            print(report.write(results.read(NAME)))
            return 0
        found = measure(options)
    except KeyboardInterrupt:
        return 130
    except (RuntimeError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    failed = missed(found) or [row for row in found if row.note.startswith("ours") and row.note.endswith("failed")]
    return 1 if options.strict and failed else 0


if __name__ == "__main__":
    sys.exit(main())
