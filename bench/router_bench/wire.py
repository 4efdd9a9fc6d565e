"""The bytes that clients and shards exchange in this benchmark. Pure."""

import json
from typing import Final

EVENTS: Final = 20
PACED_EVENTS: Final = 50
PACE_SECONDS: Final = 0.02
KEY: Final = "tp-benchmark-key"
LAST: Final = b"0\r\n\r\n"
ASKS_FOR_IDS: Final = b"x-tokenpool-token-ids"
CHUNK: Final = {
    "id": "chatcmpl-5c3a2f6e",
    "object": "chat.completion.chunk",
    "created": 1_790_000_000,
    "model": "bench",
    "choices": [{"index": 0, "delta": {"content": " token"}, "logprobs": None, "finish_reason": None}],
}
EVENT: Final = b"data: " + json.dumps(CHUNK, separators=(",", ":")).encode() + b"\n\n"
DONE: Final = b"data: [DONE]\n\n"


def framed(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def head(*, with_ids: bool) -> bytes:
    """The answer's head; a router that asks for token ids is told what our shards tell it."""
    told = b"x-tokenpool-prompt-tokens: 256\r\nx-tokenpool-seed: 12345\r\n" if with_ids else b""
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
        b"%btransfer-encoding: chunked\r\n\r\n" % told
    )


def event(*, with_ids: bool) -> bytes:
    """One event in a chunk of its own, as a step of an engine writes it."""
    return framed((b":1234\n" if with_ids else b"") + EVENT)


def burst(*, with_ids: bool) -> bytes:
    """A whole answer at once: 19 tokens and the end."""
    return head(with_ids=with_ids) + event(with_ids=with_ids) * (EVENTS - 1) + framed(DONE) + LAST


def request(path: str = "/v1/chat/completions", *, kind: str = "burst") -> bytes:
    """A chat of about a kilobyte, streamed, with an API key. The stand-in goes by the model's name."""
    body = {
        "model": kind,
        "stream": True,
        "max_tokens": 128,
        "messages": [{"role": "user", "content": "x" * 880}],
    }
    raw = json.dumps(body).encode()
    return (
        b"POST %b HTTP/1.1\r\nhost: pool\r\ncontent-type: application/json\r\naccept: */*\r\n"
        b"user-agent: bench\r\nauthorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b"
        % (path.encode(), KEY.encode(), len(raw), raw)
    )
