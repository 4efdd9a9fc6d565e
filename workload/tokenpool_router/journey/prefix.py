"""The beginning of a request as a chain of hashes, by which a shard that has computed it can be found again. Pure."""

from typing import Final

# About 256 tokens: less would match what all requests have in common, more would miss what they share.
BLOCK_BYTES: Final = 1024
MOST_BLOCKS: Final = 64


def prefix_of(body: bytes) -> tuple[int, ...]:
    """A hash for each leading block of the body, each including all before it. The hashes are this process's own.

    The body as it came: who sends a conversation again with one more message repeats every byte up to there.
    """
    chain, found = 0, []
    for start in range(0, min(len(body) - BLOCK_BYTES + 1, MOST_BLOCKS * BLOCK_BYTES), BLOCK_BYTES):
        chain = hash((chain, body[start : start + BLOCK_BYTES]))
        found.append(chain)
    return tuple(found)
