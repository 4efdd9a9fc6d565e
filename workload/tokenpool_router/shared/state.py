"""How is it going with Redis? For the admin page and the metrics; no secrets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class State:
    """One look. Totals are since the start of the process."""

    connected: bool = False
    error: str = ""
    """Why the last exchange of numbers failed; empty when it did not."""
    vocabulary_error: str = ""
    """The same for the counts of the vocabulary."""
    age_seconds: float | None = None
    """Since the last good exchange; None before the first."""
    routers: int = 0
    """Other routers whose numbers were read at the last exchange."""
    routers_left_out: int = 0
    """Others that were too many, or too large together, to be read."""
    unreadable: int = 0
    """Values in Redis that no router of ours wrote (total)."""
    batches_sent: int = 0
    merges: int = 0
    merges_refused: int = 0
    """Merges of ours that came after somebody newer had taken the lock (total)."""
    holds_lock: bool = False
