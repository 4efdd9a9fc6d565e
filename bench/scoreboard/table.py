"""Rows as a table that a person reads, on a terminal and as Markdown. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from scoreboard.rows import NOT_PLANNED

HEADINGS = ("what", "unit", "ours", "peer", "", "ratio", "spread", "must", "")


def number(value: float | None) -> str:
    """Three digits that mean something, never in powers of ten."""
    if value is None:
        return "—"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def verdict(row: dict[str, Any]) -> str:
    """`met`, `MISSED`, or why neither can be said."""
    if row["met"] is None:
        return str(row["note"])
    word = "met" if row["met"] else "MISSED"
    return f"{word} ({row['note']})" if row["note"] else word


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of `results/NAME.json` as texts, one a heading."""
    low_high = row["spread"]
    return (
        row["work"],
        row["unit"],
        number(row["ours"]),
        number(row["peer"]),
        row["peer_name"] or "",
        number(row["ratio"]) if row["ratio"] is not None else "",
        f"{number(low_high[0])}–{number(low_high[1])}" if low_high and low_high[0] != low_high[1] else "",
        (row["must"] or "").removeprefix("ratio "),
        verdict(row),
    )


def terminal(rows: Sequence[dict[str, Any]]) -> str:
    """Columns under each other. Rows that were not in the plan are only counted."""
    shown = [row for row in rows if row["note"] != NOT_PLANNED]
    lines = [HEADINGS, *map(cells, shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    left_out = [f"({len(rows) - len(shown)} rows are not part of this run)"] if len(shown) < len(rows) else []
    return "\n".join([*(_aligned(line, widths) for line in lines), *left_out])


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    numbers = {2, 3, 5, 6}
    padded = (
        text.rjust(width) if column in numbers else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    """The same for a page."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|---|--:|--:|---|--:|--:|---|---|"]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in cells(row)) + " |" for row in rows]
    return "\n".join(lines)
