"""Text in pieces: whole characters only, stop strings wherever they fall."""

from collections.abc import Sequence

import pytest

from tokenpool_engine.text import Detokenizer


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
    assert subject.push(list(b"abcST")) == "ab"
    assert subject.push(list(b"art")) == "cST"
    assert subject.finish() == "art"
