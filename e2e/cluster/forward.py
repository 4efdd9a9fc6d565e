"""A TCP forwarder from loopback of the ordinary network into a cluster's: `python -m cluster.forward`.

Its listening socket is opened before it enters the network namespace and stays outside; what it connects is inside.
"""

import argparse
import asyncio
import ctypes
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

CLONE_NEWNET = 0x40000000
BUFFER_BYTES = 1 << 16


def enter(namespace: Path) -> None:
    """Move this process into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open() as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends, then say so to the other."""
    with suppress(OSError):
        while data := await reader.read(BUFFER_BYTES):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()


async def serve(listening: socket.socket, host: str, port: int) -> None:
    """Forward every connection until SIGTERM."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(host, port), 10)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        try:
            # When one direction breaks, the other must not linger: a cut stream has to be seen as cut.
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        finally:
            for end in (writer, far_writer):
                end.close()

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_server(accept, sock=listening, limit=BUFFER_BYTES)
    async with server:
        await stop.wait()
    os._exit(0)  # open connections of clients are nobody's concern any more


def main() -> None:
    """Listen, enter, forward."""
    parser = argparse.ArgumentParser(prog="cluster.forward", description=__doc__)
    parser.add_argument("--namespace", type=Path, required=True, help="file of the network namespace")
    parser.add_argument("--listen", type=int, required=True, help="port on 127.0.0.1")
    parser.add_argument("--to", required=True, help="host:port inside")
    found = parser.parse_args()
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", found.listen))
    host, _, port = found.to.rpartition(":")
    enter(found.namespace)
    asyncio.run(serve(listening, host, int(port)))


if __name__ == "__main__":
    main()
