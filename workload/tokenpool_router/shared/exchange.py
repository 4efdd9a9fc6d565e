"""Tell our numbers, hear the others'. One round; when it happens is not settled here."""

import contextlib
from dataclasses import dataclass
from typing import Final

from tokenpool_router.shared.door import Door, Unreachable
from tokenpool_router.shared.keys import Keys
from tokenpool_router.shared.messages import MOST_BYTES, OwnNumbers, Published, Unreadable, decode, encode
from tokenpool_router.shared.scripts import EXCHANGE, LEAVE

EXPIRY_SECONDS: Final = 3.0
MOST_ROUTERS: Final = 64
MOST_BYTES_READ: Final = 8 * MOST_BYTES


@dataclass(frozen=True)
class Heard:
    """The other routers' numbers by id, and what was not heard: values that are none, routers that were too many."""

    published: dict[str, Published]
    unreadable: int
    left_out: int
    bytes_moved: int


class Exchange:
    """This router among the others of its pool. `born` is another one for each start of the process."""

    def __init__(self, door: Door, keys: Keys, router_id: str, born: str) -> None:
        self._door = door
        self._keys = (keys.members, keys.numbers(router_id))
        self._prefix = keys.numbers_prefix
        self._router_id = router_id
        self._born = born

    async def round(self, numbers: OwnNumbers) -> Heard:
        """Publish and read, in one script.

        Raises:
            Unreachable: it failed.
        """
        body = encode(numbers, self._born)
        expiry = int(EXPIRY_SECONDS * 1000)
        limits = (MOST_ROUTERS, MOST_BYTES, MOST_BYTES_READ)
        said = await self._door.run(EXCHANGE, self._keys, self._router_id, body, expiry, self._prefix, *limits)
        return hear(said, len(body))

    async def leave(self) -> None:
        """Be gone at once for the others.

        Raises:
            Unreachable: they will notice when our numbers expire.
        """
        await self._door.run(LEAVE, self._keys, self._router_id)


def hear(said: object, bytes_told: int) -> Heard:
    """The script's answer. One router's garbage is that router's alone.

    Raises:
        Unreachable: it is no answer of the script.
    """
    if not isinstance(said, list) or len(said) % 2 == 0 or not isinstance(said[0], int):
        raise Unreachable("a strange answer to the exchange of numbers")
    names, bodies = said[1::2], said[2::2]
    published = read_each(names, bodies)
    bytes_moved = bytes_told + sum(len(body) for body in bodies if isinstance(body, bytes))
    return Heard(published, len(names) - len(published), said[0], bytes_moved)


def read_each(names: list[object], bodies: list[object]) -> dict[str, Published]:
    """What can be read, by router id."""
    published: dict[str, Published] = {}
    for name, body in zip(names, bodies, strict=True):
        if isinstance(name, bytes) and isinstance(body, bytes):
            with contextlib.suppress(Unreadable, UnicodeDecodeError):
                published[name.decode()] = decode(body)
    return published
