"""A table of numbers that the processes of one router share: a row for each worker, and one for all other routers.

Each row has one writer, so there are no locks: a reader may see a pair half updated, but never half a number.
"""

import mmap
import os
from typing import Final

NUMBERS: Final = 2
BYTES: Final = 8


class Gauges:
    """Two whole numbers in each slot: tokens and requests. The file has no name and ends with its processes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, 0)
        self._table = memoryview(self._map).cast("q")
        self.rows, self.slots = self._table[0], self._table[1]

    @classmethod
    def create(cls, rows: int, slots: int) -> "Gauges":
        """A table of zeros. Children get it by its descriptor."""
        descriptor = os.memfd_create("tokenpool-gauges", 0)
        os.set_inheritable(descriptor, True)
        size = BYTES * NUMBERS * (1 + rows * slots)
        os.ftruncate(descriptor, size)
        os.pwrite(descriptor, rows.to_bytes(BYTES, "little") + slots.to_bytes(BYTES, "little"), 0)
        return cls(descriptor)

    def _at(self, row: int, slot: int) -> int:
        if not (0 <= row < self.rows and 0 <= slot < self.slots):
            raise IndexError(f"no slot {slot} in row {row}")
        return NUMBERS * (1 + row * self.slots + slot)

    def set(self, row: int, slot: int, tokens: int, requests: int) -> None:
        """Write one pair; only for the row's owner."""
        at = self._at(row, slot)
        self._table[at], self._table[at + 1] = tokens, requests

    def get(self, row: int, slot: int) -> tuple[int, int]:
        """Read one pair."""
        at = self._at(row, slot)
        return self._table[at], self._table[at + 1]

    def others(self, row: int, slot: int) -> tuple[int, int]:
        """The sums of all other rows."""
        at, step = self._at(0, slot), NUMBERS * self.slots
        own = row * step
        stop = self.rows * step
        tokens = sum(self._table[at + offset] for offset in range(0, stop, step) if offset != own)
        requests = sum(self._table[at + offset + 1] for offset in range(0, stop, step) if offset != own)
        return tokens, requests

    def clear(self, row: int) -> None:
        """Zeros for a whole row: its worker is gone, and so is what it had."""
        for slot in range(self.slots):
            self.set(row, slot, 0, 0)

    def clear_slot(self, slot: int) -> None:
        """Zeros for all rows: the slot is another one's from here on."""
        for row in range(self.rows):
            self.set(row, slot, 0, 0)

    def close(self) -> None:
        """Let go of it."""
        self._table.release()
        self._map.close()
        os.close(self.descriptor)
