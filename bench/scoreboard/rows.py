"""Is a must met? A row is what we reached beside what somebody else reached in the same run. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scoreboard.statistics import median, spread

# The note of a row whose measurement a shorter run leaves out on purpose.
NOT_PLANNED = "not part of this run"


@dataclass(frozen=True)
class Must:
    """A bound on the ratio: at least (`>=`), at most (`<=`) or more than (`>`) a number."""

    relation: str
    bound: float

    def __str__(self) -> str:
        return f"ratio {self.relation} {self.bound:.3g}"

    def holds(self, ratio: float) -> bool:
        """Whether the ratio is within the bound.

        Raises:
            ValueError: the relation is none of the three.
        """
        match self.relation:
            case ">=":
                return ratio >= self.bound
            case "<=":
                return ratio <= self.bound
            case ">":
                return ratio > self.bound
        raise ValueError(f"{self.relation!r} is no relation")


@dataclass(frozen=True)
class Row:
    """One line of the table: without a peer information, without `ours` not measured, and `note` says why."""

    work: str
    unit: str
    ours: float | None = None
    peer: float | None = None
    peer_name: str | None = None
    ratio: float | None = None
    must: Must | None = None
    spread: tuple[float, float] | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None where nothing is asked or the two sides were not both measured."""
        return None if self.must is None or self.ratio is None else self.must.holds(self.ratio)

    def as_json(self) -> dict[str, Any]:
        """The row of `bench/results/NAME.json`."""
        return {
            "work": self.work,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "peer_name": self.peer_name,
            "ratio": self.ratio,
            "must": str(self.must) if self.must else None,
            "met": self.met,
            "spread": list(self.spread) if self.spread else None,
            "note": self.note,
        }


Values = Sequence[float | None]


def compared(work: str, unit: str, ours: Values, peer: Values, *, peer_name: str, must: Must, note: str = "") -> Row:
    """Median over median. The spread is that of the repeats' own ratios: both sides of one repeat ran side by side."""
    middle = [median(present(values)) if present(values) else None for values in (ours, peer)]
    left, right = middle
    if left is None or not right:
        return Row(work, unit, left, right, peer_name, must=must, note=note or "not measured")
    ratios = [a / b for a, b in zip(ours, peer, strict=False) if a is not None and b]
    return Row(work, unit, left, right, peer_name, left / right, must, spread(ratios) if ratios else None, note)


def alone(work: str, unit: str, ours: Values, note: str = "") -> Row:
    """A row that compares with nobody; its spread is that of the values."""
    values = present(ours)
    if not values:
        return Row(work, unit, note=note or "not measured")
    return Row(work, unit, median(values), spread=spread(values), note=note)


def present(values: Values) -> list[float]:
    """Without the repeats that have none."""
    return [value for value in values if value is not None]


def missed(rows: Sequence[Row]) -> list[Row]:
    """Those whose must is not met."""
    return [row for row in rows if row.met is False]
