"""The ledger's books, by hand and over random histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_engine.cache import CacheFull, Ledger, LedgerError

PAGE = 4


def ledger(pages: int = 4, kept_at_first: int | None = None) -> Ledger:
    return Ledger(pages, PAGE, kept_at_first)


def test_pages_are_taken_lowest_first_and_come_back() -> None:
    book = ledger()
    book.reserve("a", [1] * 5, 5)
    book.reserve("b", [2], 1)
    assert (book.held("a"), book.held("b")) == ((0, 1), (2,))
    assert (book.reserved_tokens, book.capacity_tokens, book.free_pages) == (12, 16, 1)
    book.free("a")
    book.reserve("c", [3] * 9, 9)
    assert book.held("c") == (0, 1, 3)


def test_what_does_not_fit_changes_nothing() -> None:
    book = ledger(2)
    book.reserve("a", [1] * 4, 4)
    with pytest.raises(CacheFull, match="2 pages wanted, 1 free"):
        book.reserve("b", [2] * 5, 5)
    with pytest.raises(CacheFull, match="1 pages wanted, 1 free, 1 to be left"):
        book.reserve("b", [2] * 4, 4, spare=1)
    with pytest.raises(CacheFull):
        book.grow("a", 13)
    book.grow("a", 8)
    assert book.held("a") == (0, 1)


def test_a_published_beginning_is_shared_but_for_the_last_token() -> None:
    book = ledger(8)
    book.reserve("a", range(8), 9)
    book.publish("a", range(8), 0)
    assert book.reserve("whole", range(8), 8) == 4
    assert book.reserve("longer", range(9), 9) == 8
    assert book.reserve("other", [0, 1, 2, 9, 4], 5) == 0
    assert book.held("whole")[0] == book.held("longer")[0] == book.held("a")[0]
    assert book.held("longer")[:2] == book.held("a")[:2]
    assert book.shared_tokens == 12
    book.check()


def test_the_same_tokens_behind_others_are_not_the_same() -> None:
    book = ledger(8)
    book.reserve("a", [1, 1, 1, 1, 5, 5, 5, 5], 8)
    book.publish("a", [1, 1, 1, 1, 5, 5, 5, 5], 0)
    assert book.reserve("b", [2, 2, 2, 2, 5, 5, 5, 5, 6], 9) == 0
    assert book.reserve("c", [5, 5, 5, 5, 6], 5) == 0


def test_what_nobody_holds_is_kept_until_its_place_is_needed_the_longest_unused_first() -> None:
    book = ledger(4)
    for name, start in (("a", 0), ("b", 10)):
        book.reserve(name, range(start, start + 8), 8)
        book.publish(name, range(start, start + 8), 0)
        book.free(name)
    assert (book.free_pages, book.reserved_tokens) == (4, 0)
    book.reserve("c", [99], 1)
    # The last page of the older one went; its first is there still.
    assert book.reserve("a", range(9), 4) == 4
    book.free("a")
    assert book.reserve("b", range(10, 19), 12) == 8
    book.check()


def test_two_who_computed_the_same_keep_their_pages_and_one_is_shared() -> None:
    book = ledger(8)
    for name in ("a", "b"):
        book.reserve(name, range(9), 9)
    for name in ("a", "b"):
        book.publish(name, range(4), 0)
    for name in ("b", "a"):
        book.publish(name, range(4, 8), 1)
    assert book.reserve("c", range(9), 9) == 8
    assert book.held("c")[:2] == (book.held("a")[0], book.held("b")[1])
    book.check()


def test_what_cannot_be_trusted_is_forgotten() -> None:
    book = ledger()
    book.reserve("a", range(5), 5)
    book.publish("a", range(5), 0)
    book.free("a", forget=True)
    assert book.reserve("b", range(5), 5) == 0
    book.check()


def test_fresh_pages_are_spared_until_sharing_has_earned_them() -> None:
    book = Ledger(64, PAGE, kept_at_first=2)
    for number in range(10):
        text = range(100 * number, 100 * number + 9)
        book.reserve("a", text, 9)
        book.publish("a", text, 0)
        book.free("a")
    # Three pages were held at most, and two or three are kept beside them.
    assert book._used <= 6
    book.reserve("b", range(900, 909), 9)
    assert book.shared_tokens == 8
    for number in range(20, 24):
        text = range(100 * number, 100 * number + 9)
        book.reserve("c", text, 9)
        book.publish("c", text, 0)
        book.free("c")
    assert book._used > 8
    book.check()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda book: book.reserve("a", [1], 1),
        lambda book: book.free("nobody"),
        lambda book: book.publish("a", [1] * 4, 1),
    ],
)
def test_wrong_books_are_bugs(wrong: object) -> None:
    book = ledger()
    book.reserve("a", [1] * 4, 4)
    with pytest.raises(LedgerError):
        wrong(book)  # type: ignore[operator]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"), st.sampled_from(["grow", "publish", "free", "forget"]), st.integers(1, 40)
        ),
        max_size=80,
    ),
    st.sampled_from([None, 0, 2]),
)
def test_the_books_add_up_after_any_history(history: list[tuple[str, str, int]], kept_at_first: int | None) -> None:
    book = ledger(12, kept_at_first)
    rooms: dict[str, int] = {}
    for owner, action, tokens in history:
        text = [ord(owner) % 3] * 40
        try:
            if owner not in rooms:
                shared = book.reserve(owner, text[:tokens], tokens)
                assert shared < tokens
                assert shared % PAGE == 0
                rooms[owner] = tokens
            elif action == "grow":
                book.grow(owner, rooms[owner] + tokens)
                rooms[owner] += tokens
            elif action == "publish":
                first = book.published(owner)
                book.publish(owner, text[first * PAGE : min(tokens, rooms[owner])], first)
            else:
                book.free(owner, forget=action == "forget")
                del rooms[owner]
        except CacheFull:
            pass
        book.check()
        assert all(len(book.held(owner)) == -(-room // PAGE) for owner, room in rooms.items())
