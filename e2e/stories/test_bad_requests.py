"""Bad requests get a clear 4xx in OpenAI's form, and the stream next to them does not notice."""

import http.client
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from stack import reference
from stack.pool import Pool

MODEL = "smollm2-135m-instruct"
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


class Bad(NamedTuple):
    """One bad request: body, wanted status, and a word that the message must hold."""

    body: bytes
    status: int
    word: str


def changed(**fields: Any) -> bytes:
    return json.dumps({**CHAT, **fields}).encode()


BAD = {
    "not JSON": Bad(b"{nope", 400, "JSON"),
    "broken UTF-8": Bad(b'{"model": "\xff\xfe"}', 400, ""),
    "unknown model": Bad(changed(model="nobody"), 404, "nobody"),
    "no messages": Bad(json.dumps({"model": MODEL}).encode(), 400, "messages"),
    "prompt too long": Bad(changed(messages=[{"role": "user", "content": "word " * 30_000}]), 400, "tokens"),
    "huge max_tokens": Bad(changed(max_tokens=10**9), 400, "max_tokens"),
    "huge n": Bad(changed(n=10**6), 400, "n"),
    "wrong type": Bad(changed(temperature="hot"), 400, "temperature"),
    "huge body": Bad(changed(messages=[{"role": "user", "content": "x" * 9_000_000}]), 413, "body"),
}


def post(url: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request(
            "POST", "/v1/chat/completions", body=body, headers={"Content-Type": "application/json", **(headers or {})}
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_bad_requests_do_not_disturb_the_neighbour(make_pool: Callable[[str], Pool], model_directory: Path) -> None:
    pool = make_pool("bad")
    pool.apply()
    pool.wait_ready(shards=1)
    url = pool.url()
    client = pool.client()
    begun = threading.Event()
    prompt = "Count from one to fifty in words."

    def control() -> str:
        text = ""
        for chunk in client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": prompt}], max_tokens=160, temperature=0, stream=True
        ):
            text += chunk.choices[0].delta.content or ""
            begun.set()
        return text

    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(control)
        assert begun.wait(60)
        for name, bad in BAD.items():
            status, answer = post(url, bad.body)
            assert (name, status) == (name, bad.status)
            assert set(answer["error"]) >= {"message", "type", "param", "code"}, name
            assert bad.word in answer["error"]["message"], name
        status, _ = post(url, changed(), {"X-Huge": "h" * 100_000})
        assert status == 431
        send_half_a_body(url)
        text = stream.result(timeout=120)
    assert text == reference.generate(model_directory, prompt, 160)
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in pool.shards())


def send_half_a_body(url: str) -> None:
    """Promise a hundred bytes, send five, hang up."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as raw:
        raw.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: pool\r\nContent-Length: 100\r\n\r\n{"mod')
