"""What the router has to know of a request's body, and what it learns about a model's requests. Pure.

A body that cannot be read counts by its size: to refuse it is the shard's business, which names what is wrong.
"""

from typing import Any, Final, final

import orjson

FIRST_TOKENS_PER_BYTE: Final = 0.25
FIRST_ANSWER_TOKENS: Final = 256
# A chat template's own tokens around a message.
TOKENS_PER_MESSAGE: Final = 4
MOST_TOKENS: Final = 1 << 20
MOST_ANSWERS: Final = 64
MOST_MODELS: Final = 64
# How much one answer moves what was learned: half of it is forgotten after some thirty requests.
LEARNING: Final = 0.02


@final
class Facts:
    """Sizes are those of the text that becomes the prompt: its bytes, or its tokens where the client gave ids."""

    __slots__ = (
        "answers",
        "can_continue",
        "is_stream",
        "max_tokens",
        "messages",
        "model",
        "prompt_bytes",
        "prompt_ids",
        "returns_ids",
    )

    # No dataclass: its constructor would stay interpreted in the compiled router.
    def __init__(
        self,
        *,
        prompt_bytes: int = 0,
        prompt_ids: int = 0,
        messages: int = 0,
        max_tokens: int = 0,
        answers: int = 1,
        is_stream: bool = False,
        returns_ids: bool = False,
        can_continue: bool = False,
        model: str = "",
    ) -> None:
        self.prompt_bytes, self.prompt_ids, self.messages = prompt_bytes, prompt_ids, messages
        self.max_tokens = max_tokens
        """The client's bound of an answer, 0 for none."""
        self.answers, self.is_stream = answers, is_stream
        self.returns_ids = returns_ids
        """The client itself asked for token ids."""
        self.can_continue = can_continue
        """A lost stream of it can be gone on with elsewhere."""
        self.model = model


NO_FACTS: Final = Facts()


def read_facts(body: bytes) -> Facts:
    """Never raises."""
    if not body:
        return NO_FACTS
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Facts(prompt_bytes=len(body))
    if not isinstance(parsed, dict):
        return Facts(prompt_bytes=len(body))
    size, ids, prompts, messages = _prompt(parsed)
    choices = _count(parsed.get("n"), MOST_ANSWERS) or 1
    is_stream = parsed.get("stream") is True
    model = parsed.get("model")
    return Facts(
        prompt_bytes=size,
        prompt_ids=ids,
        messages=messages,
        max_tokens=_count(parsed.get("max_completion_tokens"), MOST_TOKENS)
        or _count(parsed.get("max_tokens"), MOST_TOKENS),
        answers=choices * prompts,
        is_stream=is_stream,
        returns_ids=parsed.get("return_token_ids") is True,
        # What is told by an answer's position in its text would begin anew.
        can_continue=is_stream and choices * prompts == 1 and not parsed.get("echo") and not _has_offsets(parsed),
        model=model if isinstance(model, str) else "",
    )


def _has_offsets(body: dict[str, Any]) -> bool:
    return "messages" not in body and body.get("logprobs") is not None


def _count(value: Any, most: int) -> int:
    # First of all whether it is a truth value: compiled, an int is an int and True is 1.
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(value, most) if value > 0 else 0


def _prompt(body: dict[str, Any]) -> tuple[int, int, int, int]:
    """Bytes, ids, number of prompts, number of messages."""
    messages = body.get("messages")
    if isinstance(messages, list):
        size = sum(map(_message_bytes, messages))
        # Tools become part of the prompt as they are written.
        size += len(orjson.dumps(body["tools"])) if body.get("tools") else 0
        return size, 0, 1, len(messages)
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return _bytes(prompt), 0, 1, 0
    if not isinstance(prompt, list) or not prompt:
        return 0, 0, 1, 0
    if isinstance(prompt[0], int):
        return 0, len(prompt), 1, 0
    texts = sum(_bytes(one) for one in prompt if isinstance(one, str))
    return texts, sum(len(one) for one in prompt if isinstance(one, list)), len(prompt), 0


def _message_bytes(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return _bytes(content)
    parts = content if isinstance(content, list) else []
    return sum(_bytes(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


class Learned:
    """What requests of one model were like: tokens a byte of prompt, tokens of an answer."""

    __slots__ = ("answer_tokens", "tokens_per_byte")

    def __init__(self) -> None:
        self.tokens_per_byte = FIRST_TOKENS_PER_BYTE
        self.answer_tokens = float(FIRST_ANSWER_TOKENS)

    def prompt_tokens(self, facts: Facts) -> int:
        """Estimated tokens of the prompts."""
        return facts.prompt_ids + int(facts.prompt_bytes * self.tokens_per_byte) + facts.messages * TOKENS_PER_MESSAGE

    def expected_answer_tokens(self, facts: Facts) -> int:
        """Of all answers together. A bound is seldom reached, and rarely is an answer four times the usual one."""
        usual = int(self.answer_tokens * 1.5) + 1
        return facts.answers * (min(facts.max_tokens, usual) if facts.max_tokens else usual)

    def learn(self, facts: Facts, prompt_tokens: int, answer_tokens: int) -> None:
        """One more request came to its end; 0 prompt tokens where nobody counted them."""
        self.answer_tokens += LEARNING * (answer_tokens / facts.answers - self.answer_tokens)
        text = prompt_tokens - facts.prompt_ids - facts.messages * TOKENS_PER_MESSAGE
        if facts.prompt_bytes and text > 0:
            # A long text tells more than a short one.
            share = LEARNING * min(facts.prompt_bytes / 512, 4.0)
            self.tokens_per_byte += share * (text / facts.prompt_bytes - self.tokens_per_byte)


class Models:
    """What is learned, by the name that clients use; bounded, since clients can make names up."""

    def __init__(self) -> None:
        self._by_name: dict[str, Learned] = {"": Learned()}

    def of(self, name: str) -> Learned:
        """What is known of a model."""
        found = self._by_name.get(name)
        if found is None:
            if len(self._by_name) > MOST_MODELS:
                return self._by_name[""]
            found = self._by_name[name] = Learned()
        return found
