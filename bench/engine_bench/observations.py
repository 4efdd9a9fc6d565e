"""What was seen: figures by visit and repeat, kept apart from what is made of them. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from engine_bench.job import Outcome
from scoreboard.rows import NOT_PLANNED


@dataclass(frozen=True)
class Seen:
    """One visit. `memory` in bytes after the load, `peaks` by point where memory was watched.

    `busy` is the part of all cores that others used just before.
    """

    ready_seconds: float
    memory: int
    outcomes: dict[str, Outcome]
    peaks: dict[str, int]
    busy: float

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Seen":
        """As `asdict` wrote it."""
        outcomes = {point: Outcome.from_json(found) for point, found in content["outcomes"].items()}
        return cls(**content | {"outcomes": outcomes})


@dataclass
class Observations:
    """By visit key, one entry a repeat; None where that repeat failed. `absent` tells why a visit gave nothing."""

    seen: dict[str, list[Seen | None]] = field(default_factory=lambda: defaultdict(list))
    absent: dict[str, str] = field(default_factory=dict)

    def values(self, visit: str, read: Callable[[Seen], float | None]) -> list[float | None]:
        """A figure of each repeat; a repeat that lacks it gives None, so that repeats stay side by side."""
        return [read(one) if one else None for one in self.seen.get(visit, [])]

    def why_not(self, visit: str) -> str:
        """Why a visit has no figures; empty when it has."""
        if any(self.seen.get(visit, [])):
            return ""
        return self.absent.get(visit, NOT_PLANNED)

    def repeats(self) -> str:
        """How often visits were made: one number, or the least and the most."""
        counts = [len(repeats) for repeats in self.seen.values() if repeats] or [0]
        return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))

    def busiest(self) -> float:
        """The most that others used of the cores before any visit."""
        return max((one.busy for repeats in self.seen.values() for one in repeats if one), default=0.0)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Observations":
        """Of an earlier run."""
        found = cls()
        for visit, repeats in content.items():
            found.seen[visit] = [Seen.from_json(one) if one else None for one in repeats]
        return found

    def without(self, visits: Collection[str]) -> "Observations":
        """All but those visits."""
        kept = {visit: repeats for visit, repeats in self.seen.items() if visit not in visits}
        return Observations(
            defaultdict(list, kept), {key: why for key, why in self.absent.items() if key not in visits}
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, for whoever wants to look closer."""
        return {visit: [asdict(one) if one else None for one in repeats] for visit, repeats in self.seen.items()}


def outcome(point: str, name: str) -> Callable[[Seen], float | None]:
    """Reads a figure of a point; a point with failed requests has none, since the others had it easier."""

    def read(seen: Seen) -> float | None:
        found = seen.outcomes.get(point)
        return float(getattr(found, name)) if found and not found.errors else None

    return read


def peak(point: str) -> Callable[[Seen], float | None]:
    """Reads the peak memory of a watched point in GB."""
    return lambda seen: seen.peaks[point] / 1e9 if point in seen.peaks else None


def memory(seen: Seen) -> float:
    """Memory after the load in GB."""
    return seen.memory / 1e9


def ready(seen: Seen) -> float:
    """Start to first answer in seconds."""
    return seen.ready_seconds
