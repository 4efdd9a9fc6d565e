"""Which requests does a server get? The same ones in the same order, whatever the server. Pure.

Ragged as real traffic is: prompts of 16 to 255 tokens, answers of 16 to 127. Each number of clients has a stream of
its own, so that no server answers a prompt from the cache of an earlier point.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

PROMPT_TOKENS = (16, 255)
ANSWER_TOKENS = (16, 127)
# Word and token id: the words joined give exactly these ids, so a server that takes only text gets the same prompt.
Words = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Request:
    """`words` are places in the model's list of words; the answer has exactly `answer_tokens` tokens."""

    words: tuple[int, ...]
    answer_tokens: int


def draw(stream: str, index: int, vocabulary: int) -> Request:
    """Request `index` of a stream: a function of its arguments."""
    chance = random.Random(f"{stream}/{index}")
    length, answer_tokens = chance.randint(*PROMPT_TOKENS), chance.randint(*ANSWER_TOKENS)
    return Request(tuple(chance.randrange(vocabulary) for _ in range(length)), answer_tokens)


def static_batches(requests: Sequence[Request], size: int) -> list[Request]:
    """What a static batch computes for them: every row goes on until the longest of its group has ended."""
    groups = (requests[start : start + size] for start in range(0, len(requests), size))
    longest = [(group, max(request.answer_tokens for request in group)) for group in groups]
    return [replace(request, answer_tokens=tokens) for group, tokens in longest for request in group]


def body(request: Request, words: Words, *, as_text: bool, model: str) -> bytes:
    """The body of POST /v1/completions: greedy, streaming, to the last token.

    Who takes only text also refuses `ignore_eos`, and has a model without an end token instead.
    """
    chosen = [words[place] for place in request.words]
    prompt = "".join(text for text, _ in chosen) if as_text else [token for _, token in chosen]
    content = {
        "model": model,
        "prompt": prompt,
        "max_tokens": request.answer_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(content if as_text else content | {"ignore_eos": True}).encode()


def read_words(path: Path) -> Words:
    """The list that was written beside a model."""
    return [(text, token) for text, token in json.loads(path.read_text())]
