"""Counts of the vocabulary: send ours as batches, and now and then be the one router that merges all batches.

The lock keeps routers from doing the same work twice; it is not what makes a merge right. A holder can be paused for
longer than its lease, so a merge is written only with the newest fence, and the script that writes the table takes
the merged batches away in the same moment: no batch counts twice and none is lost, wherever a merger dies.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokenpool_router.shared import vocabulary
from tokenpool_router.shared.door import Door, Unreachable
from tokenpool_router.shared.keys import Keys
from tokenpool_router.shared.messages import Unreadable
from tokenpool_router.shared.scripts import BEGIN_MERGE, COMMIT_MERGE, READ_TABLE, SEND

LEASE_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 5.0
MOST_BATCHES: Final = 256
URGENT_BATCHES: Final = MOST_BATCHES // 2
BATCHES_OF_MERGE: Final = 64
SENDER_REMEMBERED_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class Work:
    """What the holder of the lock has to merge."""

    fence: int
    table: bytes
    ids: Sequence[bytes]
    batches: Sequence[bytes]


@dataclass(frozen=True)
class Merged:
    """The new table, the batches that are in it, and how many values were none of ours."""

    fence: int
    table: bytes
    ids: Sequence[bytes]
    unreadable: int


class Merging:
    """This router's part in the pool's counts. `token` is ours alone: the lock tells by it whose it is."""

    def __init__(
        self,
        door: Door,
        keys: Keys,
        token: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._door = door
        self._keys = keys
        self._token = token
        self._lease_seconds = lease_seconds
        self._pause_seconds = pause_seconds

    async def send(self, sequence: int, batch: bytes) -> bool:
        """Add a batch, once however often it is sent. False: there is no room before somebody merges.

        Raises:
            Unreachable: it may have arrived or not; send it again under the same number.
        """
        keys = (self._keys.batches, self._keys.sent(self._token))
        memory = int(SENDER_REMEMBERED_SECONDS * 1000)
        return int(await self._door.run(SEND, keys, sequence, batch, MOST_BATCHES, memory)) >= 0

    async def begin(self) -> Work | None:
        """Take the lock and what there is to merge; None when somebody else has it or nothing is due.

        Raises:
            Unreachable: it failed. If we got the lock without hearing of it, it expires.
        """
        said = await self._door.run(
            BEGIN_MERGE,
            self._keys.merging,
            self._token,
            int(self._lease_seconds * 1000),
            BATCHES_OF_MERGE,
            vocabulary.MOST_BATCH_BYTES,
            vocabulary.MOST_TABLE_BYTES,
            int(self._pause_seconds * 1000),
            URGENT_BATCHES,
        )
        return read_work(said)

    async def commit(self, merged: Merged) -> bool:
        """Write the table and take its batches away. False: refused, somebody newer is at it.

        Raises:
            Unreachable: both happened, or neither.
        """
        keys = self._keys.merging
        said = await self._door.run(COMMIT_MERGE, keys, self._token, merged.fence, merged.table, *merged.ids)
        return bool(said == 1)

    async def table(self) -> dict[int, int]:
        """The pool's counts by token id; empty where there are none yet.

        Raises:
            Unreachable: they could not be read.
        """
        said = await self._door.run(READ_TABLE, (self._keys.table,), vocabulary.MOST_TABLE_BYTES)
        return await asyncio.to_thread(unpack_or_nothing, said)


def read_work(said: Any) -> Work | None:
    """The script's answer.

    Raises:
        Unreachable: it is none.
    """
    if said == []:
        return None
    if not isinstance(said, list) or len(said) % 2 or not isinstance(said[0], int):
        raise Unreachable("a strange answer to the taking of the lock")
    return Work(said[0], said[1], said[2::2], said[3::2])


def do_work(work: Work) -> Merged:
    """Merge. What cannot be read counts nothing and leaves with the rest; tens of milliseconds of one core."""
    unreadable = 0
    batches = []
    for body in work.batches:
        try:
            batches.append(vocabulary.decode_batch(body))
        except Unreadable:
            unreadable += 1
    try:
        table = vocabulary.merge(work.table, batches)
    except Unreadable:
        unreadable += 1
        table = vocabulary.merge(b"", batches)
    return Merged(work.fence, table, work.ids, unreadable)


def unpack_or_nothing(table: bytes) -> dict[int, int]:
    """The counts of a table; none if it is no table, since the next merge begins a new one."""
    try:
        return vocabulary.unpack(table)
    except Unreadable:
        return {}
