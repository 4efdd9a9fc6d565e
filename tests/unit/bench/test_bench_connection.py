"""The load against a server of a few lines: keep-alive, static groups, refusals, broken streams."""

import asyncio
import json
from pathlib import Path

import pytest

from engine_bench.job import Job
from engine_bench.load import play, prepare

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
EVENT = b'data: {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}\n\n'


class Server:
    """Answers each request with one event; counts connections and how many requests ran side by side."""

    def __init__(self, answer: bytes) -> None:
        self.answer, self.connections, self.bodies = answer, 0, 0
        self.running = self.most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"Length" in line)
                json.loads(await reader.readexactly(length))
                self.bodies += 1
                self.running += 1
                self.most = max(self.most, self.running)
                for _ in range(5):
                    await asyncio.sleep(0)
                self.running -= 1
                writer.write(self.answer)
                if not self.answer.endswith(b"0\r\n\r\n"):
                    break
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        finally:
            writer.close()


def chunked(*parts: bytes) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def played(server: Server, tmp_path: Path, *, clients: int, requests: int) -> list[str]:
    words = tmp_path / "words.json"
    words.write_text(json.dumps([[" a", 1], [" b", 2]]))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        job = Job((port,), "m", str(words), "x", clients, requests, request_seconds=5)
        work = prepare(job)
        await play(job, work)
    return [recording.error for _, recording in work]


async def test_each_client_keeps_its_connection(tmp_path: Path) -> None:
    server = Server(chunked(EVENT, b"data: [DONE]\n\n"))
    assert await played(server, tmp_path, clients=2, requests=6) == [""] * 6
    assert (server.bodies, server.connections) == (6, 2)
    assert server.most <= 2


@pytest.mark.parametrize("answer", [HEAD + b"5\r\nhe", b"what is this\r\n\r\n"], ids=["cut", "not HTTP"])
async def test_a_broken_answer_is_an_error_and_the_next_request_goes_on(answer: bytes, tmp_path: Path) -> None:
    server = Server(answer)
    errors = await played(server, tmp_path, clients=1, requests=2)
    assert all(errors)
    assert server.bodies == 2


async def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    words = tmp_path / "words.json"
    words.write_text(json.dumps([[" a", 1]]))
    job = Job((1,), "m", str(words), "x", 1, 1)
    work = prepare(job)
    await play(job, work)
    assert work[0][1].error.startswith("no connection")
