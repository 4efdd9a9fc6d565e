"""The ledger of the paged KV cache: which request holds which pages. Integers only; the tensors are the runner's.

A request reserves at admission all pages that it can ever need, so a running request never waits for another one and
nothing is ever preempted.
"""

import heapq
from dataclasses import dataclass, field


class CacheFull(Exception):
    """There are not enough free pages; the request has to wait."""


class LedgerError(Exception):
    """The books do not add up: a bug."""


@dataclass
class Ledger:
    """`pages` pages of `page_tokens` tokens each."""

    pages: int
    page_tokens: int
    _free: list[int] = field(init=False)
    _held: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.pages < 1 or self.page_tokens < 1:
            raise ValueError("a cache has at least one page of at least one token")
        self._free = list(range(self.pages))

    @property
    def capacity_tokens(self) -> int:
        """Tokens that all pages hold."""
        return self.pages * self.page_tokens

    @property
    def reserved_tokens(self) -> int:
        """Tokens of all pages that are held."""
        return (self.pages - len(self._free)) * self.page_tokens

    def pages_for(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.page_tokens)

    def reserve(self, owner: str, tokens: int) -> tuple[int, ...]:
        """Take pages for so many tokens, lowest numbers first so that the used range stays dense. Raises CacheFull."""
        if owner in self._held:
            raise LedgerError(f"{owner} holds pages already")
        wanted = self.pages_for(tokens)
        if wanted > len(self._free):
            raise CacheFull(f"{wanted} pages wanted, {len(self._free)} free")
        self._held[owner] = tuple(heapq.heappop(self._free) for _ in range(wanted))
        return self._held[owner]

    def held(self, owner: str) -> tuple[int, ...]:
        """The owner's pages in the order of its tokens."""
        return self._held[owner]

    def free(self, owner: str) -> None:
        """Give all pages of the owner back."""
        if owner not in self._held:
            raise LedgerError(f"{owner} holds no pages")
        for page in self._held.pop(owner):
            heapq.heappush(self._free, page)

    def check(self) -> None:
        """Every page is free or held by exactly one owner. Raises LedgerError."""
        known = sorted([*self._free, *(page for pages in self._held.values() for page in pages)])
        if known != list(range(self.pages)):
            raise LedgerError(f"pages do not add up: {known}")
