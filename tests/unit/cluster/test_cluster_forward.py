"""The forwarder between two sockets of loopback; entering a namespace is left out."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from cluster import forward


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """A server that answers only once the client has said that it is finished."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def forwarded(port: int) -> tuple[int, asyncio.Task[None]]:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    task = asyncio.create_task(forward.serve(listening, "127.0.0.1", port))
    await asyncio.sleep(0)
    return listening.getsockname()[1], task


async def stop(task: "asyncio.Task[None]") -> None:
    """End the forwarder once its connections have ended by themselves; in the program the whole process ends."""
    connections = asyncio.all_tasks() - {task, asyncio.current_task()}
    if connections:
        await asyncio.wait(connections, timeout=10)
    for _ in range(3):  # transports close in the loop's next rounds
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_both_directions_and_a_half_closed_connection(echo: int) -> None:
    port, task = await forwarded(echo)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read() == b"got hello"
    writer.close()
    await writer.wait_closed()
    await stop(task)


async def test_nobody_behind_it_ends_the_connection() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        unused = probe.getsockname()[1]
        port, task = await forwarded(unused)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await stop(task)
