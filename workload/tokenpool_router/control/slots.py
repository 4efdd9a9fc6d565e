"""Which slot of the shared table is whose: the same one for as long as its owner stays. Pure."""

from collections.abc import Callable, Iterable


class NoSlot(Exception):
    """The table is full."""


class Slots:
    """Gives slots out. `cleared` is called before one gets a new owner."""

    def __init__(self, first: int, count: int, cleared: Callable[[int], None]) -> None:
        self._free = list(range(first + count - 1, first - 1, -1))
        self._of: dict[str, int] = {}
        self._cleared = cleared

    def settle(self, names: Iterable[str]) -> dict[str, int]:
        """The slots of these, and of nobody else. Raises NoSlot."""
        wanted = list(dict.fromkeys(names))
        for name in set(self._of) - set(wanted):
            self._free.insert(0, self._of.pop(name))
        for name in wanted:
            if name not in self._of:
                if not self._free:
                    raise NoSlot
                slot = self._of[name] = self._free.pop()
                self._cleared(slot)
        return dict(self._of)
