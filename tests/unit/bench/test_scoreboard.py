"""Numbers, musts, tables and pages."""

from typing import Any

import pytest

from scoreboard import busy, table
from scoreboard.machine import cpu_model
from scoreboard.page import NoMarkers, with_part
from scoreboard.rows import NOT_PLANNED, Must, Row, alone, compared, missed
from scoreboard.statistics import median, percentile


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 2.5), (99, 3.97), (100, 4)])
def test_percentiles_lie_between_ranks(percent: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], percent) == pytest.approx(value)


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        median([])


@pytest.mark.parametrize(
    ("relation", "ratio", "holds"),
    [
        (">=", 1.2, True),
        (">=", 1.19, False),
        ("<=", 1.2, True),
        ("<=", 1.21, False),
        (">", 1.2, False),
        (">", 1.3, True),
    ],
)
def test_musts(relation: str, ratio: float, holds: bool) -> None:
    assert Must(relation, 1.2).holds(ratio) is holds


def beside(ours: list[float | None], peer: list[float | None]) -> Row:
    return compared("work", "tok/s", ours, peer, peer_name="peer", must=Must(">=", 1.0))


def test_the_ratio_is_median_over_median_and_the_spread_that_of_the_rounds() -> None:
    row = beside([10, 20, 30], [10, 10, 40])
    assert (row.ours, row.peer, row.ratio, row.met, row.spread) == (20, 10, 2.0, True, (0.75, 2.0))


def test_a_round_that_failed_pairs_with_nothing() -> None:
    assert beside([None, 20, 30], [10, 10, 10]).spread == (2.0, 3.0)


@pytest.mark.parametrize(("ours", "peer"), [([], [1.0]), ([1.0], []), ([None], [1.0]), ([1.0], [0.0])])
def test_one_side_alone_meets_and_misses_nothing(ours: list[float | None], peer: list[float | None]) -> None:
    row = beside(ours, peer)
    assert (row.ratio, row.met, row.note) == (None, None, "not measured")
    assert missed([row]) == []


def test_missed_rows_are_found() -> None:
    assert [row.ratio for row in missed([beside([1], [2]), beside([2], [1])])] == [0.5]


def test_the_table_names_what_is_met_and_missed_and_counts_what_was_not_planned() -> None:
    rows = [beside([1], [2]), beside([1234], [2]), alone("memory", "GB", [1.5]), alone("more", "s", [], NOT_PLANNED)]
    lines = table.terminal([row.as_json() for row in rows]).splitlines()
    assert lines[1].split() == ["work", "tok/s", "1.00", "2.00", "peer", "0.50", ">=", "1", "MISSED"]
    assert lines[2].split() == ["work", "tok/s", "1,234", "2.00", "peer", "617", ">=", "1", "met"]
    assert lines[3].split() == ["memory", "GB", "1.50", "—"]
    assert lines[4] == "(1 rows are not part of this run)"


def test_json_has_the_fields_of_every_benchmark() -> None:
    row: dict[str, Any] = beside([2], [1]).as_json()
    assert row == {
        "work": "work", "unit": "tok/s", "ours": 2, "peer": 1, "peer_name": "peer", "ratio": 2.0,
        "must": "ratio >= 1", "met": True, "spread": [2.0, 2.0], "note": "",
    }  # fmt: skip


def test_markdown_has_a_line_a_row() -> None:
    lines = table.markdown([beside([1], [2]).as_json()]).splitlines()
    assert lines[2] == "| work | tok/s | 1.00 | 2.00 | peer | 0.50 |  | >= 1 | MISSED |"
    assert {line.count("|") for line in lines} == {10}


def test_only_what_is_between_the_markers_changes() -> None:
    page = "before\n<!-- x: begin (generated) -->\nold\n<!-- x: end -->\nafter\n"
    once = with_part(page, "x", "new \\1")
    assert once == "before\n<!-- x: begin (generated) -->\nnew \\1\n<!-- x: end -->\nafter\n"
    assert with_part(once, "x", "new \\1") == once
    with pytest.raises(NoMarkers, match="'y'"):
        with_part(page, "y", "new")


def test_a_busy_machine_is_told() -> None:
    before, after = "cpu 100 0 0 900 0 0 0 0\n", "cpu 150 0 0 940 10 0 0 0\n"
    assert busy.share(before, after) == 0.5
    assert "50%" in busy.warning(0.5)
    assert busy.warning(0.05) == ""


def test_the_cpus_name_is_read() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Some CPU\nmodel name\t: Other\n") == "Some CPU"
