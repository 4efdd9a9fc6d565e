"""Log probabilities in the forms of the two endpoints. Pure, but for remembering the texts of single tokens."""

from collections.abc import Sequence
from typing import Any

from tokenpool_engine.request import Picked

# JSON has no infinity.
LOWEST = -9999.0
WORD_START = "▁"


class TokenTexts:
    """The text of single tokens, remembered; one for each tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def __getitem__(self, token: int) -> str:
        if (text := self._known.get(token)) is None:
            text = self._known[token] = self._read(token)
        return text

    def _read(self, token: int) -> str:
        text = str(self._tokenizer.decode([token]))
        # Alone, a word's first token loses the space before it in some families.
        piece = self._tokenizer.convert_ids_to_tokens(token)
        begins_word = isinstance(piece, str) and piece.startswith(WORD_START) and not text.startswith(" ")
        return f" {text}" if begins_word else text


def for_chat(picked: Sequence[Picked], texts: TokenTexts) -> dict[str, Any]:
    """`logprobs` of a chat's choice."""
    return {"content": [_entry(one, texts) for one in picked], "refusal": None}


def _entry(picked: Picked, texts: TokenTexts) -> dict[str, Any]:
    top = [_token(token, chance, texts) for token, chance in picked.top]
    return {**_token(picked.token, picked.logprob, texts), "top_logprobs": top}


def _token(token: int, chance: float | None, texts: TokenTexts) -> dict[str, Any]:
    text = texts[token]
    return {"token": text, "logprob": _finite(chance), "bytes": list(text.encode(errors="replace"))}


def for_completion(picked: Sequence[Picked], texts: TokenTexts, offset: int) -> dict[str, Any]:
    """`logprobs` of a completion's choice; `offset` is where its first token's text begins, in characters."""
    offsets, words = [], [texts[one.token] for one in picked]
    for word in words:
        offsets.append(offset)
        offset += len(word)
    return {
        "tokens": words,
        "token_logprobs": [_finite(one.logprob) for one in picked],
        "top_logprobs": [_by_text(one, texts) for one in picked],
        "text_offset": offsets,
    }


def _by_text(picked: Picked, texts: TokenTexts) -> dict[str, float]:
    """The likeliest tokens and the picked one; of two with the same text the likelier counts."""
    found: dict[str, float] = {}
    for token, chance in (*picked.top, (picked.token, picked.logprob)):
        found.setdefault(texts[token], _finite(chance))
    return found


def _finite(chance: float | None) -> float:
    return LOWEST if chance is None else max(chance, LOWEST)
