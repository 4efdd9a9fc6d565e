"""The ledger of the paged KV cache: who holds which pages, and what is in them. Integers only; the tensors are the
runner's.

A request takes pages as it grows. Full pages whose tokens are computed are *published*: a later request with the same
beginning shares them instead of computing them again. A page that nobody holds keeps its content until its place is
needed, least recently used first. Where pages take memory only once they are used, its place is needed sooner: keeping
has to pay for fresh pages by what was shared.
"""

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

ROOT: Final = 0
"""The chain before the first page."""
EARNED: Final = 8
"""Pages that may be kept for each page that was shared."""


class CacheFull(Exception):
    """There are not enough pages; somebody has to wait."""


class LedgerError(Exception):
    """The books do not add up: a bug."""


@dataclass
class _Holding:
    pages: list[int]
    published: int = 0
    """Pages at the front whose content is known."""
    chain: int = ROOT
    """The chain after them."""


@dataclass(frozen=True)
class _Content:
    """What a published page holds: these tokens, behind that chain. `chain` names the two together."""

    chain: int
    key: tuple[int, tuple[int, ...]]


@dataclass
class Ledger:
    """`pages` pages of `page_tokens` tokens each."""

    pages: int
    page_tokens: int
    kept_at_first: int | None = None
    """Pages that may be kept, before anything was shared, instead of taking ones that were never used. None: all."""
    shared_tokens: int = field(init=False, default=0)
    """Tokens that were not computed since their pages were shared; only grows."""
    _empty: list[int] = field(init=False)
    _kept: OrderedDict[int, None] = field(init=False, default_factory=OrderedDict)
    """Pages with content that nobody holds, least recently used first."""
    _holders: dict[int, int] = field(init=False, default_factory=dict)
    _held: dict[str, _Holding] = field(init=False, default_factory=dict)
    _contents: dict[int, _Content] = field(init=False, default_factory=dict)
    # The key is the whole content behind a chain that was compared before: no two contents can be taken for each other.
    _known: dict[tuple[int, tuple[int, ...]], int] = field(init=False, default_factory=dict)
    _last_chain: int = field(init=False, default=ROOT)
    _used: int = field(init=False, default=0)
    """Pages below this number were used before."""

    def __post_init__(self) -> None:
        if self.pages < 1 or self.page_tokens < 1:
            raise ValueError("a cache has at least one page of at least one token")
        self._empty = list(range(self.pages))

    @property
    def capacity_tokens(self) -> int:
        """Tokens that all pages hold."""
        return self.pages * self.page_tokens

    @property
    def reserved_tokens(self) -> int:
        """Tokens of all pages that somebody holds."""
        return len(self._holders) * self.page_tokens

    @property
    def free_pages(self) -> int:
        """Pages that nobody holds, with or without content."""
        return self.pages - len(self._holders)

    def pages_for(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.page_tokens)

    def reserve(self, owner: str, tokens: Sequence[int], room: int, spare: int = 0) -> int:
        """Hold pages for `room` tokens, sharing those that begin as `tokens` do; returns how many tokens are shared.

        At least the last token is never shared: computing it gives the next one. Raises CacheFull, with nothing
        changed, when that would leave fewer than `spare` pages free.
        """
        if owner in self._held:
            raise LedgerError(f"{owner} holds pages already")
        shared, chain = self._find(tokens)
        unheld = sum(page not in self._holders for page in shared)
        wanted = self.pages_for(room) - len(shared)
        if wanted + unheld + spare > self.free_pages:
            raise CacheFull(f"{wanted + unheld} pages wanted, {self.free_pages} free, {spare} to be left")
        for page in shared:
            self._hold(page)
        self._held[owner] = _Holding(list(shared), len(shared), chain)
        self._take(owner, wanted)
        tokens_shared = len(shared) * self.page_tokens
        self.shared_tokens += tokens_shared
        return tokens_shared

    def grow(self, owner: str, tokens: int) -> None:
        """Hold pages for so many tokens. Raises CacheFull, with nothing changed."""
        wanted = self.pages_for(tokens) - len(self._held[owner].pages)
        if wanted > self.free_pages:
            raise CacheFull(f"{wanted} pages wanted, {self.free_pages} free")
        self._take(owner, wanted)

    def publish(self, owner: str, tokens: Sequence[int], first: int) -> None:
        """The owner's pages from number `first` on hold these tokens now, computed; whole pages may be shared."""
        holding = self._held[owner]
        if first != holding.published:
            raise LedgerError(f"{owner} published {holding.published} pages, not {first}")
        for start in range(0, len(tokens) - self.page_tokens + 1, self.page_tokens):
            key = (holding.chain, tuple(tokens[start : start + self.page_tokens]))
            page = holding.pages[holding.published]
            same = self._known.get(key)
            if same is None:
                self._last_chain += 1
                self._known[key] = page
                self._contents[page] = _Content(self._last_chain, key)
                same = page
            # Somebody may have computed the same at the same time: that page stays ours, and is not shared.
            holding.chain = self._contents[same].chain
            holding.published += 1

    def published(self, owner: str) -> int:
        """Pages of the owner that were published or shared."""
        return self._held[owner].published

    def held(self, owner: str) -> tuple[int, ...]:
        """The owner's pages in the order of its tokens."""
        return tuple(self._held[owner].pages)

    def free(self, owner: str, *, forget: bool = False) -> None:
        """Give all pages of the owner back; `forget` what is in them when it cannot be trusted."""
        if owner not in self._held:
            raise LedgerError(f"{owner} holds no pages")
        # The last pages first, so that they go before those that lead to them.
        for page in reversed(self._held.pop(owner).pages):
            if forget:
                self._forget(page)
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            del self._holders[page]
            if page in self._contents:
                self._kept[page] = None
            else:
                heapq.heappush(self._empty, page)

    def check(self) -> None:
        """Every page is empty, kept or held, held as often as owners say, and every content is on one page."""
        holders: dict[int, int] = {}
        for holding in self._held.values():
            for page in holding.pages:
                holders[page] = holders.get(page, 0) + 1
        if holders != self._holders:
            raise LedgerError(f"holders do not add up: {holders} and {self._holders}")
        places = sorted([*self._empty, *self._kept, *holders])
        if places != list(range(self.pages)):
            raise LedgerError(f"pages do not add up: {places}")
        if {content.key: page for page, content in self._contents.items()} != self._known:
            raise LedgerError("contents do not add up")
        if not self._kept.keys() <= self._contents.keys() or self._contents.keys() & set(self._empty):
            raise LedgerError("a page is kept without content, or empty with it")

    def _find(self, tokens: Sequence[int]) -> tuple[list[int], int]:
        """Pages that hold the beginning of the tokens, and the chain after them."""
        found: list[int] = []
        chain = ROOT
        for start in range(0, len(tokens) - self.page_tokens, self.page_tokens):
            page = self._known.get((chain, tuple(tokens[start : start + self.page_tokens])))
            if page is None:
                break
            found.append(page)
            chain = self._contents[page].chain
        return found, chain

    def _take(self, owner: str, count: int) -> None:
        """Empty pages first, lowest numbers first so that the used range stays dense; then what was kept longest."""
        for _ in range(count):
            if self._empty and not self._spares_fresh():
                page = heapq.heappop(self._empty)
                self._used = max(self._used, page + 1)
            else:
                page, _ = self._kept.popitem(last=False)
                self._forget(page)
            self._hold(page)
            self._held[owner].pages.append(page)

    def _spares_fresh(self) -> bool:
        """Only pages that were never used are empty, and more is kept than sharing has earned."""
        if self.kept_at_first is None or self._empty[0] < self._used:
            return False
        return len(self._kept) > self.kept_at_first + EARNED * self.shared_tokens // self.page_tokens

    def _hold(self, page: int) -> None:
        self._kept.pop(page, None)
        self._holders[page] = self._holders.get(page, 0) + 1

    def _forget(self, page: int) -> None:
        content = self._contents.pop(page, None)
        if content:
            del self._known[content.key]
