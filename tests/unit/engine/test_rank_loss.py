"""A served shard of two ranks: when one is killed, streams get an error and the other ends with the reason."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

START_SECONDS = 120


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def children(pid: int) -> list[int]:
    found = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for child in found.split()]


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in answer.content:
        if line.startswith(b"data: "):
            yield line.decode().removeprefix("data: ").strip()


async def until_ready(http: aiohttp.ClientSession, admin: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START_SECONDS):
        while process.returncode is None:
            try:
                async with http.get(f"http://127.0.0.1:{admin}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)
    pytest.fail(f"the shard ended with {process.returncode}")


async def test_a_killed_rank_ends_streams_and_the_shard_with_the_reason(tiny_model: Path) -> None:
    port, admin = free_ports(2)
    options = f"--model {tiny_model} --served-name tiny --kv-cache-tokens 512 --port {port} --admin-port {admin}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tokenpool_engine", "serve", *options.split()),
        *("--tensor-parallel", "2", "--threads", "1", "--dtype", "float32"),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    try:
        await kill_a_rank(process, port, admin)
    finally:
        if process.returncode is None:
            process.kill()


async def kill_a_rank(process: asyncio.subprocess.Process, port: int, admin: int) -> None:
    assert process.stderr
    words = asyncio.create_task(process.stderr.read())
    body = {"model": "tiny", "prompt": "abc", "stream": True, "ignore_eos": True, "max_tokens": 480}
    async with aiohttp.ClientSession() as http:
        await until_ready(http, admin, process)
        async with http.post(f"http://127.0.0.1:{port}/v1/completions", json=body) as answer:
            coming = events(answer)
            assert json.loads(await anext(coming))["choices"]
            [rank] = children(process.pid)
            os.kill(rank, signal.SIGKILL)
            rest = [event async for event in coming]
    assert "error" in json.loads(rest[-1])
    assert await asyncio.wait_for(process.wait(), 20) == 2
    last = (await words).decode().splitlines()[-1]
    assert last == "RankLost: rank 1 of 2 was killed by SIGKILL; the shard cannot go on without it"
