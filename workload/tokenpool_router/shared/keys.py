"""What the keys of one pool are called. One hash tag for all, so that a Redis Cluster keeps a pool in one place."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Keys:
    """The keys of the pool `namespace/name`."""

    pool: str

    def __post_init__(self) -> None:
        if not self.pool or set(self.pool) & set("{}"):
            raise ValueError(f"not namespace/name: {self.pool!r}")

    @property
    def prefix(self) -> str:
        """What all begin with."""
        return f"tokenpool:{{{self.pool}}}:"

    @property
    def members(self) -> str:
        """Sorted set: router id -> its last beat, milliseconds of Redis' clock."""
        return f"{self.prefix}routers"

    @property
    def numbers_prefix(self) -> str:
        """What the keys of routers' numbers begin with; the id follows."""
        return f"{self.prefix}router:"

    def numbers(self, router: str) -> str:
        """One router's numbers, with expiry."""
        return self.numbers_prefix + router

    @property
    def batches(self) -> str:
        """Stream of counts that wait to be merged."""
        return f"{self.prefix}vocabulary:batches"

    def sent(self, born: str) -> str:
        """The number of the last batch of one sender."""
        return f"{self.prefix}vocabulary:sent:{born}"

    @property
    def merging(self) -> tuple[str, str, str, str]:
        """Lock, fence, batches, table: what a merge needs."""
        vocabulary = f"{self.prefix}vocabulary"
        return f"{vocabulary}:lock", f"{vocabulary}:fence", self.batches, self.table

    @property
    def table(self) -> str:
        """Hash: the pool's counts, the fence that wrote them, and when."""
        return f"{self.prefix}vocabulary"
