"""The shape of answers: chat and text completions, whole and in chunks. Pure: ids, times and texts come in."""

from dataclasses import dataclass
from typing import Any

from tokenpool_engine.api.openai import usage


@dataclass(frozen=True)
class Reply:
    """Builds the bodies of one request's answer."""

    id: str
    created: int
    model: str
    is_chat: bool
    prompt_tokens: int
    includes_usage: bool

    def whole(self, text: str, finish: str, tokens: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
        if self.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        return {**self._head(chunk=False), "choices": [choice], "usage": usage(self.prompt_tokens, tokens)}

    def opening(self) -> dict[str, Any] | None:
        """The first chunk of a chat, which carries the role; completions have none."""
        return self._chunk({"role": "assistant", "content": ""}) if self.is_chat else None

    def piece(self, text: str) -> dict[str, Any]:
        """A chunk of text."""
        return self._chunk({"content": text} if self.is_chat else text)

    def closing(self, finish: str) -> dict[str, Any]:
        """The chunk that carries the finish reason."""
        return self._chunk({} if self.is_chat else "", finish)

    def usage_chunk(self, tokens: int) -> dict[str, Any]:
        """The last chunk when usage was asked for: no choices."""
        return {**self._head(chunk=True), "choices": [], "usage": usage(self.prompt_tokens, tokens)}

    def _chunk(self, content: Any, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta" if self.is_chat else "text": content, "logprobs": None, "finish_reason": finish}
        body = {**self._head(chunk=True), "choices": [choice]}
        return {**body, "usage": None} if self.includes_usage else body

    def _head(self, *, chunk: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if self.is_chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
