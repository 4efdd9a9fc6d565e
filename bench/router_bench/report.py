"""`python -m router_bench.report`: the router's parts of docs/performance.md from the last results."""

import sys
from pathlib import Path
from typing import Any

from scoreboard import results, table
from scoreboard.page import with_part

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
PARTS = ("router", "router-replay")


def part(content: dict[str, Any]) -> str:
    """The generated text of one benchmark."""
    machine = content["machine"]
    origin = (
        f"Measured at commit `{content['commit']}` on {machine['cores']} cores of {machine['cpu']}, "
        f"{machine['memory_gb']} GB, Linux {machine['kernel']}."
    )
    return f"{origin}\n\n{table.markdown(content['rows'])}"


def main() -> None:
    """Refresh what there are results of."""
    found = 0
    for name in PARTS:
        try:
            content = results.read(name)
        except FileNotFoundError:
            continue
        PAGE.write_text(with_part(PAGE.read_text(), name, part(content)))
        found += 1
    if not found:
        sys.exit("there are no results yet: run make bench-router or make bench-replay first")
    print(PAGE)


if __name__ == "__main__":
    main()
