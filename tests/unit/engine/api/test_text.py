"""Text in pieces: whole characters only, stop strings wherever they fall."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tokenpool_engine.api.text import ContextDecoder, Detokenizer, NativeDecoder


class BytesTokenizer:
    """A fake tokenizer: one id is one byte of UTF-8."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return bytes(ids).decode(errors="replace")


def byte_level() -> PreTrainedTokenizerFast:
    """One token a byte, and a special one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate([*alphabet, "<eos>"])}, []))
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


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


def sentencepiece_like() -> PreTrainedTokenizerFast:
    """Words begin with a mark that becomes a space, the text's first space goes, unknown letters are bytes."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁the", "▁a", "▁▁", "b", "é", "日", "."]
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def wordpiece_like() -> PreTrainedTokenizerFast:
    """Tokens are words; parts of words carry a mark, and spaces before signs go."""
    words = ["[UNK]", "hello", "##lo", "wor", "##ld", ",", "'", "s", "."]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


BYTE_LEVEL, SENTENCEPIECE, WORDPIECE = byte_level(), sentencepiece_like(), wordpiece_like()


def check_native(tokenizer: Any, ids: list[int]) -> None:
    subject = Detokenizer(tokenizer)
    assert isinstance(subject._decoder, NativeDecoder)
    given = "".join(subject.push([token]) for token in ids) + subject.finish()
    assert given == tokenizer.decode(ids, skip_special_tokens=True)
    assert subject.taken == len(ids)


@given(st.lists(st.integers(0, 256), max_size=30))
def test_any_bytes_of_a_byte_level_tokenizer_add_up_to_what_it_says_itself(ids: list[int]) -> None:
    check_native(BYTE_LEVEL, ids)


@given(st.lists(st.one_of(st.sampled_from([257, 258, 259, 260, 261, 262, 263, 264]), st.text("a🦊é", max_size=2))))
def test_any_text_of_a_sentencepiece_like_tokenizer_adds_up(parts: list[int | str]) -> None:
    ids = [one for part in parts for one in ([part] if isinstance(part, int) else [1 + byte for byte in part.encode()])]
    check_native(SENTENCEPIECE, ids)


@given(st.lists(st.integers(0, 8), max_size=12))
def test_any_words_of_a_wordpiece_like_tokenizer_add_up(ids: list[int]) -> None:
    check_native(WORDPIECE, ids)


def test_a_tokenizer_that_tidies_its_text_is_read_the_slow_way() -> None:
    tidy = wordpiece_like()
    tidy.clean_up_tokenization_spaces = True
    assert isinstance(Detokenizer(tidy)._decoder, ContextDecoder)


@pytest.mark.parametrize("min_tokens", [0, 2, 4, 5])
def test_stop_strings_are_not_looked_for_in_the_first_tokens(min_tokens: int) -> None:
    subject = Detokenizer(BytesTokenizer(), ["b"], min_tokens)
    given = "".join(subject.push([byte]) for byte in b"abcbd") + subject.finish()
    wanted = {0: "a", 2: "abc", 4: "abcbd", 5: "abcbd"}[min_tokens]
    assert (given, subject.stopped) == (wanted, min_tokens < 4)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_tokens_after_a_stop_string_are_not_taken(size: int) -> None:
    subject, raw = Detokenizer(BytesTokenizer(), ["cd"]), b"abcdefg"
    for at in range(0, len(raw), size):
        subject.push(list(raw[at : at + size]))
    assert subject.taken == 4


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
