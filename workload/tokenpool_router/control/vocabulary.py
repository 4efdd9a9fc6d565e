"""Which tokens were used how often, until somebody takes the counts. Pure."""

from collections.abc import Mapping
from typing import Final

# A hundred bytes each: 13 MB at most, and only while Redis is away.
MOST_TOKENS: Final = 131_072


class VocabularyCounts:
    """Counts by token id. While nobody takes them they are halved as often as it needs to stay bounded."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._most_tokens = most_tokens
        self._counts: dict[int, int] = {}

    def add(self, counts: Mapping[str, int]) -> None:
        """A report's counts; ids come as text."""
        held = self._counts
        for token, count in counts.items():
            number = int(token)
            held[number] = held.get(number, 0) + count
        while len(self._counts) > self._most_tokens:
            self._counts = {token: count >> 1 for token, count in self._counts.items() if count > 1}

    def take(self) -> dict[int, int]:
        """What was counted since the last call."""
        taken, self._counts = self._counts, {}
        return taken
