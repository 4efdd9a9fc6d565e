"""`python -m engine_bench [--quick] [--repeats N] [--only TEXT] [--strict] [--report]`."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from engine_bench import plan, report, weights
from engine_bench.lineup import everyone
from engine_bench.measure import play_round
from engine_bench.observations import Observations
from engine_bench.score import rows
from scoreboard import busy, results, table
from scoreboard.rows import Row, missed

NAME = "engine"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="engine_bench", description="The shard engine beside its peers.")
    parser.add_argument("--quick", action="store_true", help="about two minutes: one repeat, one model, few requests")
    parser.add_argument("--repeats", type=int, help="rounds (3; quick: 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="visits whose name holds TEXT, as in '58m ours'")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a must is missed or our engine fails")
    parser.add_argument("--report", action="store_true", help="only write docs/performance.md from the last results")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> list[Row]:
    """All rounds, then rows, table and file."""
    began = time.monotonic()
    visits = [visit for visit in (plan.quick() if options.quick else plan.full()) if options.only in visit.key]
    repeats = options.repeats or (1 if options.quick else 3)
    models, engines, seen = weights.prepare(), everyone(install=not options.quick), Observations()
    for number in range(repeats):
        print(f"round {number + 1} of {repeats}", flush=True)
        play_round(visits, engines, models, seen)
    has_int8 = not options.quick and any(seen.seen.get("58m ours-int8", []))
    found = rows(seen, weights.quality_of_int8(models["smollm2"]) if has_int8 else None)
    mode = "quick" if options.quick else "full"
    content = results.result(
        found, mode=mode, repeats=repeats, only=options.only, busy=seen.busiest(), seen=seen.as_json()
    )
    path = results.write(NAME, content)
    print(f"\n{table.terminal(content['rows'])}\n\n{busy.warning(seen.busiest())}")
    print(f"{verdict(found)}; {time.monotonic() - began:.0f} s; {path}")
    return found


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
