"""Token ids to text, bit by bit: no half characters, and stop strings found even across tokens."""

from collections.abc import Sequence
from typing import Any

REPLACEMENT = "\ufffd"


class Detokenizer:
    """Incremental text of one request. `stops` end it; the stop string itself is not given out."""

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        # Text that may be the beginning of a stop string is held back.
        self._hold = max((len(stop) for stop in stops), default=1) - 1
        self._ids: list[int] = []
        self._prefix, self._read = 0, 0
        self._pending = ""
        self.stopped = False

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids and give out the text that is certain now."""
        if self.stopped:
            return ""
        self._ids += ids
        self._pending += self._decode_new(final=False)
        return self._cut() if self._stops else self._give(len(self._pending))

    def finish(self) -> str:
        """The rest, at the end of the request."""
        if self.stopped:
            return ""
        self._pending += self._decode_new(final=True)
        text = self._cut() if self._stops else ""
        return text if self.stopped else text + self._give(len(self._pending))

    def _decode_new(self, *, final: bool) -> str:
        """Decode with a little context before, since the same ids read differently at the start of a text."""
        before = self._tokenizer.decode(self._ids[self._prefix : self._read], skip_special_tokens=True)
        whole = self._tokenizer.decode(self._ids[self._prefix :], skip_special_tokens=True)
        if not final and whole.endswith(REPLACEMENT):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        new: str = whole[len(before) :]
        return new

    def _cut(self) -> str:
        ends = [at for stop in self._stops if (at := self._pending.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return self._give(min(ends))
        return self._give(max(len(self._pending) - self._hold, 0))

    def _give(self, size: int) -> str:
        text, self._pending = self._pending[:size], self._pending[size:]
        return text
