"""The ledger's books, by hand and over random histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_engine.cache import CacheFull, Ledger, LedgerError


def test_pages_are_taken_lowest_first_and_come_back() -> None:
    ledger = Ledger(pages=4, page_tokens=16)
    assert ledger.reserve("a", 17) == (0, 1)
    assert ledger.reserve("b", 1) == (2,)
    assert (ledger.reserved_tokens, ledger.capacity_tokens) == (48, 64)
    ledger.free("a")
    assert ledger.reserve("c", 33) == (0, 1, 3)
    assert ledger.held("b") == (2,)


def test_what_does_not_fit_changes_nothing() -> None:
    ledger = Ledger(pages=2, page_tokens=16)
    ledger.reserve("a", 16)
    with pytest.raises(CacheFull, match="2 pages wanted, 1 free"):
        ledger.reserve("b", 17)
    assert ledger.reserve("b", 16) == (1,)


@pytest.mark.parametrize("wrong", [lambda book: book.reserve("a", 1), lambda book: book.free("nobody")])
def test_wrong_books_are_bugs(wrong: object) -> None:
    ledger = Ledger(pages=4, page_tokens=16)
    ledger.reserve("a", 1)
    with pytest.raises(LedgerError):
        wrong(ledger)  # type: ignore[operator]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 200)), max_size=60))
def test_the_books_add_up_after_any_history(history: list[tuple[str, int]]) -> None:
    ledger = Ledger(pages=12, page_tokens=16)
    held: dict[str, int] = {}
    for owner, tokens in history:
        if owner in held:
            ledger.free(owner)
            del held[owner]
            continue
        pages = -(-tokens // 16)
        if sum(held.values()) + pages > 12:
            with pytest.raises(CacheFull):
                ledger.reserve(owner, tokens)
        else:
            assert len(ledger.reserve(owner, tokens)) == pages
            held[owner] = pages
        ledger.check()
        assert ledger.reserved_tokens == 16 * sum(held.values())
