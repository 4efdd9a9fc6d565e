"""How many tokens a request is worth before anybody has tokenized it. Pure; the stream corrects it later."""

from typing import Any, Final

import orjson

BYTES_PER_TOKEN: Final = 4
DEFAULT_ANSWER_TOKENS: Final = 256


def estimate_tokens(body: bytes) -> int:
    """Prompt bytes over four plus what the client allows as answer. A body that is not JSON counts by its size."""
    prompt = len(body) // BYTES_PER_TOKEN + 1
    try:
        parsed: Any = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        return prompt
    if not isinstance(parsed, dict):
        return prompt
    return prompt + answer_tokens(parsed)


def answer_tokens(body: dict[str, Any]) -> int:
    """The client's bound, or a usual answer's length."""
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and value > 0:
            return min(value, 1 << 20)
    return DEFAULT_ANSWER_TOKENS
