"""Which shards have computed which beginnings of prompts, as far as one router remembers."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, final

MOST_BLOCKS: Final = 200_000
# A beginning that everybody sends is on many shards; to know a few of them is enough.
SHARDS_PER_BLOCK: Final = 4


@final
class PrefixIndex:
    """From a block's hash, which stands for all before it, to the shards that had it last."""

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: OrderedDict[int, tuple[str, ...]] = OrderedDict()

    def remember(self, prefix: Sequence[int], shard_id: str) -> None:
        """That shard computes this beginning now."""
        for block in prefix:
            known = self._shards.get(block, ())
            if not known or known[0] != shard_id:
                self._shards[block] = (shard_id, *(one for one in known if one != shard_id))[:SHARDS_PER_BLOCK]
            self._shards.move_to_end(block)
        while len(self._shards) > MOST_BLOCKS:
            self._shards.popitem(last=False)

    def matches(self, prefix: Sequence[int]) -> dict[str, int]:
        """Leading blocks by shard, longest first."""
        found: dict[str, int] = {}
        for count in range(len(prefix), 0, -1):
            for shard_id in self._shards.get(prefix[count - 1], ()):
                found.setdefault(shard_id, count)
            if len(found) >= SHARDS_PER_BLOCK:
                break
        return found
