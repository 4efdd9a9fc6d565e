"""The shape of answers: chat and text completions, whole and as server-sent events. Pure: ids, times, texts come in.

A chunk of plain text is the hot path: all around the text is made once for each choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from tokenpool_api import names
from tokenpool_engine.api.answer import Piece
from tokenpool_engine.api.logprobs import TokenTexts, for_chat, for_completion
from tokenpool_engine.request import Finish, Picked

DONE: Final = b"data: [DONE]\n\n"
# A text that JSON writes as it is, and that no id or name holds.
MARK: Final = "<text of the chunk>"


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % orjson.dumps(body)


@dataclass(frozen=True)
class Reply:
    """What all choices of one answer have in common, and the bodies of the whole answer."""

    id: str
    created: int
    model: str
    is_chat: bool
    prompt_tokens: int
    includes_usage: bool
    returns_token_ids: bool = False
    logprobs: TokenTexts | None = None
    seed: int = 0
    comments_token_ids: bool = False
    """For the router: the ids of an event's tokens come before it, as a comment."""

    @cached_property
    def chunk_head(self) -> dict[str, Any]:
        """The first fields of every chunk."""
        return self._head("chat.completion.chunk" if self.is_chat else "text_completion")

    @property
    def has_details(self) -> bool:
        """Chunks carry more than text."""
        return self.returns_token_ids or self.logprobs is not None

    def whole(self, choices: Sequence[dict[str, Any]], tokens: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        head = self._head("chat.completion" if self.is_chat else "text_completion")
        return {**head, "choices": choices, "usage": usage(self.prompt_tokens, tokens)}

    def usage_event(self, tokens: int) -> bytes:
        """The last chunk when usage was asked for: no choices."""
        return event({**self.chunk_head, "choices": [], "usage": usage(self.prompt_tokens, tokens)})

    def headers(self) -> dict[str, str]:
        """What a router wants to know."""
        return {names.HEADER_PROMPT_TOKENS: str(self.prompt_tokens), names.HEADER_SEED: str(self.seed)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


class ChoiceReply:
    """One choice's chunks, or its part of the whole body. A continued one had its opening elsewhere."""

    def __init__(
        self, reply: Reply, index: int, prompt: Sequence[int] = (), echo: str = "", *, continued: bool = False
    ) -> None:
        self._reply, self._index, self._prompt, self._echo = reply, index, prompt, echo
        self._before, self._after = self._template()
        self._opened = continued
        self._offset = len(echo)

    def events(self, piece: Piece) -> bytes:
        """The events of a piece; none where it has nothing to say."""
        opening = b"" if self._opened else self._opening(piece)
        if self._reply.comments_token_ids and piece.tokens:
            # Also for a piece whose text is held back: its ids then belong to the event that has the text.
            opening += b":%b\n" % ",".join(map(str, piece.tokens)).encode()
        if self._reply.has_details and piece.tokens:
            content = self._detailed(piece)
        elif piece.text:
            content = b"%b%b%b" % (self._before, orjson.dumps(piece.text), self._after)
        else:
            content = b""
        return opening + content + (self._closing(piece.finish) if piece.finish else b"")

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        text = self._echo + "".join(piece.text for piece in pieces)
        choice: dict[str, Any] = {"index": self._index, "finish_reason": str(pieces[-1].finish), "logprobs": None}
        if self._reply.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        if self._reply.logprobs is not None:
            choice["logprobs"] = self._logprobs([one for piece in pieces for one in piece.picked])
        if self._reply.returns_token_ids:
            choice["prompt_token_ids"] = list(self._prompt)
            choice[names.FIELD_TOKEN_IDS] = [token for piece in pieces for token in piece.tokens]
        return choice

    def _opening(self, piece: Piece) -> bytes:
        """With the first token: a chat's role, a completion's echo. Nothing is sent before there is a token."""
        if not (piece.text or piece.tokens or piece.finish):
            return b""
        self._opened = True
        first = {"prompt_token_ids": list(self._prompt)} if self._reply.returns_token_ids else {}
        if self._reply.is_chat:
            return event(self._chunk({"role": "assistant", "content": ""}, first))
        return event(self._chunk(self._echo, first)) if self._echo or first else b""

    def _detailed(self, piece: Piece) -> bytes:
        more: dict[str, Any] = {}
        if self._reply.logprobs is not None:
            more["logprobs"] = self._logprobs(piece.picked)
        if self._reply.returns_token_ids:
            more[names.FIELD_TOKEN_IDS] = list(piece.tokens)
        return event(self._chunk({"content": piece.text} if self._reply.is_chat else piece.text, more))

    def _closing(self, finish: Finish) -> bytes:
        return event(self._chunk({} if self._reply.is_chat else "", {"finish_reason": finish}))

    def _logprobs(self, picked: Sequence[Picked]) -> dict[str, Any]:
        texts = self._reply.logprobs
        assert texts is not None  # noqa: S101 - only called where they were asked for
        if self._reply.is_chat:
            return for_chat(picked, texts)
        found = for_completion(picked, texts, self._offset)
        self._offset += sum(map(len, found["tokens"]))
        return found

    def _template(self) -> tuple[bytes, bytes]:
        """All of a chunk around its text."""
        body = event(self._chunk({"content": MARK} if self._reply.is_chat else MARK, {}))
        before, _, after = body.rpartition(orjson.dumps(MARK))
        return before, after

    def _chunk(self, content: Any, more: dict[str, Any]) -> dict[str, Any]:
        name = "delta" if self._reply.is_chat else "text"
        choice = {"index": self._index, name: content, "logprobs": None, "finish_reason": None, **more}
        body = {**self._reply.chunk_head, "choices": [choice]}
        return {**body, "usage": None} if self._reply.includes_usage else body


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """The usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
