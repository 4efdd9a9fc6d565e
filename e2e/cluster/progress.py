"""What is being done and for how long: one line a step, on standard error, apart from a command's output."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

TERMINAL_SECONDS = 0.5
LOG_SECONDS = 10.0


class Step:
    """One running step. A terminal shows it in place, a log gets a line every ten seconds."""

    def __init__(self, name: str, stream: TextIO, depth: int) -> None:
        self.name = name
        self._stream = stream
        self._indent = "  " * depth
        self._in_place = stream.isatty()
        self._began = time.monotonic()
        self._detail = ""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._is_shown = False
        self._is_covered = False
        self._ticker = threading.Thread(target=self._tick, name=f"progress of {name}", daemon=True)
        self._ticker.start()

    def detail(self, text: str) -> None:
        """What the step is at just now; shown with the next line."""
        self._detail = text

    def cover(self) -> None:
        """An inner step begins to speak: leave the line as it is and keep quiet."""
        with self._lock:
            self._is_covered = True
            if self._is_shown and self._in_place:
                self._stream.write("\n")
                self._is_shown = False

    def uncover(self) -> None:
        """The inner step has ended."""
        self._is_covered = False

    def end(self, mark: str) -> None:
        """The last line: how it went and how long it took."""
        self._ended.set()
        self._ticker.join()
        self._write(f"{mark} {self.name} ({self._seconds():.1f} s)", last=True)

    def _tick(self) -> None:
        while not self._ended.wait(TERMINAL_SECONDS if self._in_place else LOG_SECONDS):
            if not self._is_covered:
                detail = f": {self._detail}" if self._detail else ""
                self._write(f"· {self.name} … {self._seconds():.0f} s{detail}", last=False)

    def _write(self, line: str, *, last: bool) -> None:
        with self._lock:
            if self._in_place:
                self._stream.write(f"\r\x1b[K{self._indent}{line[:118]}" + ("\n" if last else ""))
                self._is_shown = not last
            else:
                self._stream.write(f"{self._indent}{line}\n")
            self._stream.flush()

    def _seconds(self) -> float:
        return time.monotonic() - self._began


_running: list[Step] = []


@contextmanager
def step(name: str) -> Iterator[Step]:
    """Say what is being done while it lasts. Steps may hold steps; the innermost one speaks."""
    if _running:
        _running[-1].cover()
    current = Step(name, sys.stderr, len(_running))
    _running.append(current)
    mark = "✗"
    try:
        yield current
        mark = "✓"
    finally:
        current.end(mark)
        _running.pop()
        if _running:
            _running[-1].uncover()
