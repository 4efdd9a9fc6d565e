"""Counts of tokens: batches that wait until they arrived, a table that is exact until it must forget, and bounds."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_router.shared.door import Unreachable
from tokenpool_router.shared.merging import Work, do_work, read_work
from tokenpool_router.shared.messages import Unreadable
from tokenpool_router.shared.vocabulary import (
    HEAD,
    MOST_BATCH_BYTES,
    MOST_COUNTED,
    MOST_IDS_OF_BATCH,
    MOST_TABLE_BYTES,
    MOST_TOKEN_ID,
    Outbox,
    decode_batch,
    encode_batch,
    halve,
    merge,
    pack,
    unpack,
)

IDS = st.integers(0, MOST_TOKEN_ID)
TABLES = st.dictionaries(IDS, st.integers(1, 10_000), max_size=30)


@given(st.dictionaries(IDS, st.integers(1, MOST_COUNTED)))
def test_tables_and_batches_come_back(counts: dict[int, int]) -> None:
    assert unpack(pack(counts)) == counts
    assert decode_batch(encode_batch(counts)) == counts


@given(TABLES, st.lists(TABLES, max_size=5))
def test_merging_adds_exactly_while_there_is_room(table: dict[int, int], batches: list[dict[int, int]]) -> None:
    expected = Counter(table)
    for batch in batches:
        expected.update(batch)
    assert unpack(merge(pack(table), batches)) == expected


@given(st.lists(TABLES, max_size=6), st.integers(0, 6))
def test_merging_in_one_go_or_in_two_is_the_same(batches: list[dict[int, int]], cut: int) -> None:
    assert merge(merge(b"", batches[:cut]), batches[cut:]) == merge(b"", batches)


@given(st.dictionaries(IDS, st.integers(1, MOST_COUNTED), min_size=1))
def test_halving_keeps_the_bound_the_order_and_no_zeros(counts: dict[int, int]) -> None:
    halved = halve(counts)
    assert sum(halved.values()) <= MOST_COUNTED
    assert all(count > 0 for count in halved.values())
    ranked = sorted(counts, key=lambda token: counts[token])
    after = [halved.get(token, 0) for token in ranked]
    assert after == sorted(after)
    if sum(counts.values()) <= MOST_COUNTED:
        assert halved == counts
    else:  # not halved more often than needed, but for what rounding takes
        assert 2 * (sum(halved.values()) + len(counts)) > MOST_COUNTED


def test_halving_once_forgets_what_was_seen_once() -> None:
    assert halve({1: MOST_COUNTED, 2: 3, 3: 1}) == {1: MOST_COUNTED // 2, 2: 1}


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (b"{}", {}),
        (b'{"0":1,"1000000":2}', {0: 1, MOST_TOKEN_ID: 2}),
        (b'{"1000001":1,"-1":1,"":1,"x":1,"1e3":1,"99999999999999":1}', {}),
        ('{"٣":1}'.encode(), {}),  # a digit, but none of ours
        (b'{"1":0,"2":-5,"3":1.5,"4":"6","5":true,"6":null,"7":[],"8":7}', {8: 7}),
        (b'{"1":99999999999999999999999}', {}),
        (b'{"1":9000000000000000000}', {1: MOST_COUNTED}),
        (b'{"01":2,"1":3}', {1: 3}),
    ],
)
def test_entries_that_cannot_be_are_dropped(body: bytes, counts: dict[int, int]) -> None:
    assert decode_batch(body) == counts


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"\xff", b" " * (MOST_BATCH_BYTES + 1)])
def test_what_is_no_batch_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_batch(body)


@pytest.mark.parametrize("table", [b"x", HEAD + b"1234", b"tokens2\n", HEAD + bytes(MOST_TABLE_BYTES)])
def test_what_is_no_table_is_unreadable(table: bytes) -> None:
    with pytest.raises(Unreadable):
        unpack(table)


def test_the_fullest_table_and_batch_keep_their_bounds() -> None:
    assert len(pack(dict.fromkeys(range(MOST_TOKEN_ID + 1), 100))) == MOST_TABLE_BYTES
    ids = range(MOST_TOKEN_ID - MOST_IDS_OF_BATCH + 1, MOST_TOKEN_ID + 1)
    assert len(encode_batch(dict.fromkeys(ids, MOST_COUNTED))) <= MOST_BATCH_BYTES


def test_an_empty_outbox_has_nothing_to_send() -> None:
    outbox = Outbox()
    outbox.put({})
    assert outbox.batch() is None


def test_a_batch_stays_the_same_until_it_arrived() -> None:
    outbox = Outbox()
    outbox.put({1: 1})
    first = outbox.batch()
    outbox.put({1: 5, 2: 1, -1: 3})
    assert (outbox.sequence, outbox.batch()) == (1, first)
    outbox.arrived()
    assert outbox.sequence == 2
    assert decode_batch(outbox.batch() or b"") == {1: 5, 2: 1}


@given(st.lists(st.tuples(TABLES, st.booleans()), max_size=12))
def test_what_is_put_in_comes_out_once(story: list[tuple[dict[int, int], bool]]) -> None:
    outbox, put, sent = Outbox(), Counter[int](), Counter[int]()
    for counts, has_room in [*story, *[({}, True)] * 12]:
        outbox.put(counts)
        put.update(counts)
        batch = outbox.batch()
        if batch is not None and has_room:
            sent.update(decode_batch(batch))
            outbox.arrived()
    assert outbox.batch() is None
    assert sent == put


def test_many_ids_go_out_in_batches_within_bounds() -> None:
    outbox, seen = Outbox(), Counter[int]()
    outbox.put(dict.fromkeys(range(20_000), 2))
    while (batch := outbox.batch()) is not None:
        counts = decode_batch(batch)
        assert len(counts) <= MOST_IDS_OF_BATCH
        seen.update(counts)
        outbox.arrived()
    assert outbox.sequence == 4
    assert seen == dict.fromkeys(range(20_000), 2)


def test_a_table_that_is_none_is_begun_anew_and_told() -> None:
    merged = do_work(Work(7, b"garbage", [b"1-0", b"2-0"], [b"garbage", encode_batch({3: 4})]))
    assert (merged.fence, merged.ids, merged.unreadable) == (7, [b"1-0", b"2-0"], 2)
    assert unpack(merged.table) == {3: 4}


@pytest.mark.parametrize("answer", [None, 7, b"OK", [b"x", b""], [1], [1, b"", b"1-0"]])
def test_a_strange_answer_to_taking_the_lock_is_an_error(answer: object) -> None:
    with pytest.raises(Unreachable):
        read_work(answer)


def test_no_lock_is_no_work() -> None:
    assert read_work([]) is None
    assert read_work([3, b"t", b"1-0", b"b"]) == Work(3, b"t", [b"1-0"], [b"b"])
