"""Token ids to text, bit by bit: no half characters, and stop strings found even across tokens."""

from collections.abc import Sequence
from typing import Any, Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

REPLACEMENT = "\ufffd"


class Decoder(Protocol):
    """Ids in, one by one; out comes the text that later ids cannot change."""

    def step(self, token: int) -> str:
        """Take an id."""

    def rest(self) -> str:
        """What is still held back, at the end."""


class ContextDecoder:
    """For any tokenizer: decode a little context before, since the same ids read differently at the start of a text."""

    def __init__(self, tokenizer: Any, ids: Sequence[int] = ()) -> None:
        self._tokenizer, self._ids = tokenizer, list(ids)
        self._prefix, self._read = 0, len(self._ids)

    def step(self, token: int) -> str:
        """Take an id; text that ends in half a character waits for the next one."""
        self._ids.append(token)
        return self._new(final=False)

    def rest(self) -> str:
        """Half characters and all."""
        return self._new(final=True)

    def _new(self, *, final: bool) -> str:
        before = self._tokenizer.decode(self._ids[self._prefix : self._read], skip_special_tokens=True)
        whole = self._tokenizer.decode(self._ids[self._prefix :], skip_special_tokens=True)
        if not final and whole.endswith(REPLACEMENT):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        new: str = whole[len(before) :]
        return new


class NativeDecoder:
    """For tokenizers of the Rust library, which does the same at a tenth of the price."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._native = tokenizer, tokenizer.backend_tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._given, self._holds = 0, False
        self._fallback: ContextDecoder | None = None

    def step(self, token: int) -> str:
        """Take an id."""
        if self._fallback:
            return self._fallback.step(token)
        self._ids.append(token)
        try:
            text: str | None = self._stream.step(self._native, token)
        except Exception:
            # The library gives up where the decoder rewrites text that it gave before.
            return self._give_up()
        self._holds = text is None
        if text is None:
            return ""
        self._given += len(text)
        return text

    def rest(self) -> str:
        """What the whole has beyond what was given."""
        if self._fallback:
            return self._fallback.rest()
        if not self._holds:
            return ""
        whole: str = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        return whole[self._given :]

    def _give_up(self) -> str:
        whole: str = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        self._fallback = ContextDecoder(self._tokenizer, self._ids)
        return whole[self._given :]


def decoder_for(tokenizer: Any) -> Decoder:
    """The quicker one where it gives what the tokenizer's own `decode` gives."""
    is_native = isinstance(getattr(tokenizer, "backend_tokenizer", None), Tokenizer)
    if is_native and not getattr(tokenizer, "clean_up_tokenization_spaces", False):
        return NativeDecoder(tokenizer)
    return ContextDecoder(tokenizer)


class Detokenizer:
    """Incremental text of one request. `stops` end it; the stop string itself is not given out.

    They are looked for in what comes after the first `min_tokens` ids.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._decoder = decoder_for(tokenizer)
        self._stops, self._min_tokens = tuple(stops), min_tokens
        self._pending = ""
        self.taken = 0
        """Ids taken in, up to the one that completed a stop string."""
        self.stopped = False

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids and give out the text that is certain now. Ids after a stop are not taken."""
        if not self._stops:
            self.taken += len(ids)
            return self._decoder.step(ids[0]) if len(ids) == 1 else "".join(map(self._decoder.step, ids))
        given = ""
        for token in ids:
            if self.stopped:
                break
            self.taken += 1
            given += self._cut(self._decoder.step(token))
        return given

    def finish(self) -> str:
        """The rest, at the end of the request."""
        if self.stopped:
            return ""
        if not self._stops:
            return self._decoder.rest()
        text = self._cut(self._decoder.rest())
        return text if self.stopped else text + self._give(len(self._pending))

    def _cut(self, new: str) -> str:
        self._pending += new
        if self.taken <= self._min_tokens:
            return self._give(len(self._pending))
        ends = [at for stop in self._stops if (at := self._pending.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return self._give(min(ends))
        return self._give(len(self._pending) - beginning_of_a_stop(self._pending, self._stops))

    def _give(self, size: int) -> str:
        text, self._pending = self._pending[:size], self._pending[size:]
        return text


def beginning_of_a_stop(text: str, stops: Sequence[str]) -> int:
    """How many letters at the end of the text may be the beginning of a stop string."""
    longest = 0
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:size]):
                longest = size
                break
    return longest
