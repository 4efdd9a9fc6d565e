"""Text in pieces: whole characters only, stop strings wherever they fall."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_engine.api.text import Detokenizer


class BytesTokenizer:
    """A fake tokenizer: one id is one byte of UTF-8."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return bytes(ids).decode(errors="replace")


def pieces(text: str, stops: Sequence[str] = (), size: int = 1) -> tuple[list[str], bool]:
    subject = Detokenizer(BytesTokenizer(), stops)
    raw = text.encode()
    given = [subject.push(list(raw[at : at + size])) for at in range(0, len(raw), size)]
    return [*given, subject.finish()], subject.stopped


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語と絵文字🦊🚢", "", "a\ufffdb"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_pieces_add_up_to_the_text(text: str, size: int) -> None:
    given, stopped = pieces(text, size=size)
    assert "".join(given) == text
    assert not stopped


def test_no_piece_holds_half_a_character() -> None:
    given, _ = pieces("🦊x")
    assert given == ["", "", "", "🦊", "x", ""]


@pytest.mark.parametrize(
    ("text", "stops", "wanted"),
    [
        ("one STOP two", ["STOP"], "one "),
        ("one STO two", ["STOP"], None),
        ("abcdef", ["de", "bc"], "a"),
        ("STOP", ["STOP"], ""),
        ("ends with ST", ["STOP"], None),
        ("日本語。終", ["。"], "日本語"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 50])
def test_stop_strings(text: str, stops: list[str], wanted: str | None, size: int) -> None:
    given, stopped = pieces(text, stops, size)
    assert "".join(given) == (text if wanted is None else wanted)
    assert stopped == (wanted is not None)


def test_what_may_begin_a_stop_string_is_held_back() -> None:
    subject = Detokenizer(BytesTokenizer(), ["STOP"])
    assert subject.push(list(b"abcST")) == "abc"
    assert subject.push(list(b"art")) == "STart"
    assert subject.push(list(b"S")) == ""
    assert subject.finish() == "S"


@pytest.mark.parametrize("text", ["a b  c", " leading", "日本語 🦊", "x\n\ny"])
def test_pieces_of_a_real_tokenizer_add_up_to_what_it_says_itself(tokenizer: Any, text: str) -> None:
    ids: list[int] = tokenizer(text)["input_ids"]
    subject = Detokenizer(tokenizer)
    given = "".join(subject.push([token]) for token in ids) + subject.finish()
    assert given == tokenizer.decode(ids) == text


def test_special_tokens_are_not_text(tokenizer: Any) -> None:
    eos = tokenizer.eos_token_id
    subject = Detokenizer(tokenizer)
    ids = [*tokenizer("a")["input_ids"], eos, *tokenizer("b")["input_ids"], eos]
    assert "".join(subject.push([token]) for token in ids) + subject.finish() == "ab"


@given(
    st.text(alphabet="ab🦊", max_size=30),
    st.lists(st.text(alphabet="ab🦊", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 5), min_size=1),
)
def test_any_cut_into_tokens_gives_the_text_up_to_the_first_stop(text: str, stops: list[str], sizes: list[int]) -> None:
    subject, raw, given, at = Detokenizer(BytesTokenizer(), stops), list(text.encode()), "", 0
    for size in itertools.cycle(sizes):
        if at >= len(raw):
            break
        given += subject.push(raw[at : at + size])
        at += size
        certain = raw[:at]
        assert bytes(certain).decode(errors="ignore").startswith(given)
    given += subject.finish()
    assert subject.stopped == any(stop in text for stop in stops)
    # Which stop comes first may depend on the cut where two overlap, but none is ever given out.
    assert text.startswith(given)
    assert given == text or subject.stopped
    assert not any(stop in given for stop in stops)
