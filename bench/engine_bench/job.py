"""What the load process is told and what it tells back: values that cross a pipe as JSON."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """`requests` requests by `clients` clients: each sends its next one when the last has ended.

    `in_groups` is a static batch instead: `clients` requests at once, computed until the longest has ended, as a padded
    batch is; then the next ones. Only the tokens that each of them asked for count.
    `ports` are those of one server, or of several that share the clients evenly.
    """

    ports: tuple[int, ...]
    model: str
    words: str
    stream: str
    clients: int
    requests: int
    as_text: bool = False
    in_groups: bool = False
    request_seconds: float = 180.0

    def as_json(self) -> dict[str, Any]:
        """For the pipe."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Job":
        """From the pipe."""
        return cls(**content | {"ports": tuple(content["ports"])})


@dataclass(frozen=True)
class Outcome:
    """Figures of one job. Times in milliseconds; `short` counts answers with fewer tokens than asked for.

    Inter-token time is the gap between two events with text of one answer. `tokens_per_second` covers first request to
    last byte. `load_cpu` is the part of one core that the load process took.
    """

    requests: int
    tokens: int
    seconds: float
    tokens_per_second: float
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    short: int
    uncounted: int
    errors: tuple[str, ...]
    load_cpu: float

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Outcome":
        """From the pipe."""
        return cls(**content | {"errors": tuple(content["errors"])})
