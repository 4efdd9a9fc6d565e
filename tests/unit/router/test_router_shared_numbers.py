"""What a router publishes and what it makes of the others' numbers: bounds, sums that never fall, and the rhythm."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_router.shared.door import Unreachable, describe, secrets_of
from tokenpool_router.shared.exchange import Heard, hear
from tokenpool_router.shared.keys import Keys
from tokenpool_router.shared.messages import (
    MOST_BYTES,
    MOST_CALLERS,
    MOST_NUMBER,
    OwnNumbers,
    Published,
    Unreadable,
    decode,
    encode,
)
from tokenpool_router.shared.sums import REMEMBERED_SECONDS, Elsewhere
from tokenpool_router.shared.together import MOST_BACK_OFF_SECONDS, back_off, pause_after

COUNTS = st.tuples(st.integers(0, MOST_NUMBER), st.integers(0, MOST_NUMBER))
TABLES = st.dictionaries(st.text("abc-0", min_size=1, max_size=8), COUNTS, max_size=8)


def said(used: int, *, born: str = "1", requests: int = 0, caller: str = "alice") -> Published:
    return Published(born, OwnNumbers({}, {caller: (used, requests)}))


@given(TABLES, TABLES)
def test_numbers_come_back_as_they_went_but_for_zeros(
    shards: dict[str, tuple[int, int]], callers: dict[str, tuple[int, int]]
) -> None:
    back = decode(encode(OwnNumbers(shards, callers), "born"))
    assert back.born == "born"
    assert dict(back.numbers.shards) == {name: pair for name, pair in shards.items() if any(pair)}
    assert dict(back.numbers.callers) == {name: pair for name, pair in callers.items() if any(pair)}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[1]",
        b'{"born":"1"}',
        b'{"born":"","shards":{},"callers":{}}',
        b'{"born":1,"shards":{},"callers":{}}',
        b'{"born":"1","shards":[],"callers":{}}',
        b'{"born":"1","shards":{"a":1},"callers":{}}',
        b'{"born":"1","shards":{"a":[1]},"callers":{}}',
        b'{"born":"1","shards":{"a":[1,-1]},"callers":{}}',
        b'{"born":"1","shards":{"a":[1,true]},"callers":{}}',
        b'{"born":"1","shards":{"a":[1,1.5]},"callers":{}}',
        b'{"born":"1","shards":{"a":[1,9007199254740993]},"callers":{}}',
        b'{"born":"1","shards":{"":[1,1]},"callers":{}}',
        orjson.dumps({"born": "1", "shards": {"a" * 254: [1, 1]}, "callers": {}}),
        orjson.dumps({"born": "1", "shards": {}, "callers": {str(n): [1, 1] for n in range(MOST_CALLERS + 1)}}),
        b"[" * 100_000,
    ],
)
def test_anything_else_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(body)


@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_bytes_of_all_kinds_are_read_or_unreadable(body: bytes) -> None:
    with contextlib.suppress(Unreadable):
        decode(body)


def test_ten_thousand_busy_shards_fit() -> None:
    shards = {f"a-pool-with-quite-a-name-5f7b9c-{number:05}": (123_456, 64) for number in range(10_000)}
    assert len(decode(encode(OwnNumbers(shards), "born")).numbers.shards) == 10_000


def test_where_there_is_too_much_the_largest_are_said() -> None:
    shards = {f"{'x' * 240}-{number}": (number, 1) for number in range(9_000)}
    body = encode(OwnNumbers(shards), "born")
    kept = decode(body).numbers.shards
    assert MOST_BYTES // 4 < len(body) <= MOST_BYTES
    assert min(kept.values()) > max(pair for name, pair in shards.items() if name not in kept)


def test_loads_are_added_up_and_go_with_their_router() -> None:
    elsewhere = Elsewhere()
    a = Published("1", OwnNumbers({"s": (5, 1), "t": (1, 1)}))
    b = Published("2", OwnNumbers({"s": (7, 2)}))
    assert elsewhere.read({"a": a, "b": b}, 0.0).shards == {"s": (12, 3), "t": (1, 1)}
    assert elsewhere.read({"b": b}, 0.2).shards == {"s": (7, 2)}
    assert elsewhere.faded().shards == {}


@pytest.mark.parametrize(
    ("story", "totals"),
    [
        ([{"a": said(900)}, {"a": said(950)}, {"a": said(950)}], [0, 50, 50]),
        ([{"a": said(900)}, {"a": said(40, born="2")}, {"a": said(60, born="2")}], [0, 40, 60]),  # a restart
        ([{"a": said(900)}, {"a": said(30)}], [0, 30]),  # a counter began anew without a restart
        ([{"a": said(10)}, {"a": said(15)}, {}, {"a": said(25)}], [0, 5, 5, 15]),  # unheard for a moment
        ([{"a": said(10)}, {"a": said(15)}, {}, {}], [0, 5, 5, 5]),  # died
        ([{"a": said(10)}, {"a": said(15), "b": said(700)}, {"a": said(15), "b": said(701)}], [0, 5, 6]),  # a newcomer
        ([{"a": said(10)}, {"a": said(3, caller="bob")}, {"a": said(12)}], [0, 0, 2]),  # alice went unsaid once
    ],
)
def test_use_of_a_caller(story: list[dict[str, Published]], totals: list[int]) -> None:
    elsewhere = Elsewhere()
    heard = [elsewhere.read(reading, float(now)).callers["alice"][0] for now, reading in enumerate(story)]
    assert heard == totals


def test_a_router_silent_for_long_is_a_stranger_whose_past_is_not_charged() -> None:
    elsewhere = Elsewhere()
    elsewhere.read({"a": said(10)}, 0.0)
    elsewhere.read({"a": said(15)}, 1.0)
    assert elsewhere.read({"a": said(90_000)}, 2.0 + REMEMBERED_SECONDS).callers["alice"][0] == 5
    assert elsewhere.read({"a": said(90_001)}, 3.0 + REMEMBERED_SECONDS).callers["alice"][0] == 6


READINGS = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.builds(
            lambda born, used, requests: said(used, born=born, requests=requests),
            st.sampled_from(["1", "2"]),
            st.integers(0, 1000),
            st.integers(0, 9),
        ),
    ),
    max_size=12,
)


@given(READINGS, st.lists(st.floats(0, 100), min_size=12, max_size=12))
def test_use_never_falls_and_requests_are_the_present_ones(
    story: list[dict[str, Published]], gaps: list[float]
) -> None:
    elsewhere, now, before = Elsewhere(), 0.0, 0
    for reading, gap in zip(story, gaps, strict=False):
        now += gap
        used, requests = elsewhere.read(reading, now).callers.get("alice", (0, 0))
        assert used >= before
        assert requests == sum(router.numbers.callers["alice"][1] for router in reading.values())
        assert elsewhere.faded().callers.get("alice", (0, 0)) == (used, 0)
        before = used


def test_callers_without_end_are_not_remembered_without_end() -> None:
    elsewhere = Elsewhere()
    for start in range(0, 3 * MOST_CALLERS, MOST_CALLERS):
        callers = {f"c{number}": (1, 0) for number in range(start, start + MOST_CALLERS)}
        sums = elsewhere.read({"a": Published("1", OwnNumbers({}, callers))}, 0.0)
    assert len(sums.callers) == MOST_CALLERS


@pytest.mark.parametrize("answer", [None, b"OK", [], [b"x"], [0, b"a"], 7])
def test_a_strange_answer_is_an_error_and_no_crash(answer: object) -> None:
    with pytest.raises(Unreachable):
        hear(answer, 0)


def test_garbage_among_numbers_is_counted() -> None:
    good = encode(OwnNumbers({"s": (1, 1)}), "born")
    heard = hear([3, b"a", good, b"b", b"", b"\xff", good, 5, good], 10)
    assert heard == Heard({"a": decode(good)}, 3, 3, 10 + 3 * len(good))


def quiet(**others: OwnNumbers) -> dict[str, Published]:
    return {name: Published("1", numbers) for name, numbers in others.items()}


BUSY = OwnNumbers({"s": (5, 1)})


@pytest.mark.parametrize(
    ("own", "others", "bytes_moved", "seconds"),
    [
        (OwnNumbers(), {}, 0, 1.0),
        (OwnNumbers({}, {"alice": (900, 0)}), {}, 0, 1.0),
        (BUSY, {}, 0, 0.2),
        (OwnNumbers(), quiet(a=BUSY), 0, 0.2),
        (BUSY, {}, 2_500_000, 0.5),
        (BUSY, {}, 1 << 30, 1.0),
    ],
)
def test_numbers_are_told_often_while_there_is_something_to_tell(
    own: OwnNumbers, others: dict[str, Published], bytes_moved: int, seconds: float
) -> None:
    assert pause_after(own, Heard(others, 0, 0, bytes_moved)) == seconds


@given(st.integers(0, 10_000))
def test_back_off_is_bounded(failures: int) -> None:
    assert 0.1 <= back_off(failures) <= MOST_BACK_OFF_SECONDS


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("redis://host", []),
        ("redis://user:pa%20ss@host", ["pa%20ss", "pa ss"]),
        ("redis://host?password=word", ["word"]),
    ],
)
def test_no_secret_is_told(url: str, secrets: list[str]) -> None:
    assert secrets_of(url) == sorted({url, *secrets}, key=len, reverse=True)
    error = ValueError(f"bad: {' '.join([url, *secrets])}\nmore\x00")
    assert describe(error, url) == f"ValueError: bad: {' '.join(['…'] * (1 + len(secrets)))}"


def test_an_errors_text_is_short_and_printable() -> None:
    text = describe(ValueError("\x1b[31m" + "x" * 10_000), "")
    assert text.startswith("ValueError: ?[31mxx")
    assert len(text) == 200


@pytest.mark.parametrize("pool", ["", "a/{b}"])
def test_a_pool_that_would_break_the_hash_tag_is_refused(pool: str) -> None:
    with pytest.raises(ValueError, match="namespace/name"):
        Keys(pool)


def test_all_keys_of_a_pool_have_its_prefix_and_are_distinct() -> None:
    keys = Keys("team-a/chat")
    all_keys = [keys.members, keys.numbers("r"), keys.sent("b"), *keys.merging]
    assert all(key.startswith("tokenpool:{team-a/chat}:") for key in all_keys)
    assert len(set(all_keys)) == len(all_keys)
