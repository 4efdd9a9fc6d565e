"""Ports of loopback: which are free, and whether somebody listens."""

import socket
from pathlib import Path

LISTENING = "0A"


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()


def listens(port: int) -> bool:
    """Whether somebody listens on that port; looked up, because a trial connection would be forwarded."""
    wanted = f"0100007F:{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[1] == wanted and fields[3] == LISTENING for fields in map(str.split, lines))
