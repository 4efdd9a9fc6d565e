"""Rows of the table from what was seen of each proxy. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scoreboard.rows import Must, Row, alone, compared

OURS = "ours"
DIRECT = "direct"
FIRST_MUST = 0.5


@dataclass(frozen=True)
class Measured:
    """What is compared: a bound for ours, and the peer that ours must not exceed."""

    key: str
    work: str
    unit: str
    bound: float | None = None
    rival: str | None = None


MEASURES = (
    Measured("cpu_request", "CPU of a streamed answer of 20 events", "µs", 60.0, "envoy"),
    Measured("cpu_event", "CPU of an event, 10,000 a second on 200 streams", "µs", 20.0),
    Measured("first_p99", "time to first token p99, 200 streams", "ms", rival="envoy"),
    Measured("memory", "memory at 5,000 open streams, all processes", "MB", 100.0),
    Measured("largest", "memory at 5,000 open streams, the process that carries them", "MB", 100.0),
)

Seen = Mapping[str, Mapping[str, Sequence[float | None]]]
"""By measure and proxy: a value for each round, None where it could not be had."""


def limit(work: str, unit: str, values: Sequence[float | None], bound: float) -> Row:
    """Ours beside a fixed bound."""
    return compared(work, unit, values, [bound] * len(values), peer_name="the bound", must=Must("<=", 1.0))


def rows(seen: Seen, failures: Mapping[str, str]) -> list[Row]:
    """Ours beside each peer; who could not be measured says why."""
    found: list[Row] = []
    for measured in MEASURES:
        found += _rows_of(measured, seen.get(measured.key, {}), failures)
    return found + _added(seen)


def _rows_of(
    measured: Measured, by_proxy: Mapping[str, Sequence[float | None]], failures: Mapping[str, str]
) -> list[Row]:
    work, unit, rival = measured.work, measured.unit, measured.rival
    ours = by_proxy.get(OURS, [])
    found = [limit(work, unit, ours, measured.bound)] if measured.bound else []
    for name, values in by_proxy.items():
        if name in (OURS, DIRECT):
            continue
        if name in failures:
            found.append(Row(f"{work}: {name}", unit, note=failures[name][:120]))
        elif name == rival:
            found.append(compared(work, unit, ours, values, peer_name=name, must=Must("<=", 1.0)))
        else:
            found.append(_beside(work, unit, ours, values, name))
    return found


def _beside(work: str, unit: str, ours: Sequence[float | None], values: Sequence[float | None], name: str) -> Row:
    row = compared(work, unit, ours, values, peer_name=name, must=Must("<=", 1e9))
    return Row(row.work, row.unit, row.ours, row.peer, row.peer_name, row.ratio, None, row.spread, row.note)


def _added(seen: Seen) -> list[Row]:
    """What a proxy adds to the time to the first token."""
    by_proxy = seen.get("first_p50", {})
    direct = by_proxy.get(DIRECT, [])
    found = []
    for name, values in by_proxy.items():
        if name == DIRECT:
            continue
        pairs = zip(values, direct, strict=False)
        added = [None if one is None or base is None else max(one - base, 0.001) for one, base in pairs]
        work = "added time to first token p50"
        found.append(limit(work, "ms", added, FIRST_MUST) if name == OURS else alone(f"{work}: {name}", "ms", added))
    return found


def as_json(seen: Seen) -> dict[str, Any]:
    """For the results' file."""
    return {measure: {name: list(values) for name, values in by_proxy.items()} for measure, by_proxy in seen.items()}
