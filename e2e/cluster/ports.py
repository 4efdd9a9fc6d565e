"""Ports of loopback: which are free, and whether somebody listens."""

import itertools
import os
import socket
from pathlib import Path

LISTENING = "0A"
# Below the range from which the kernel takes ports for outgoing connections: a port stays free over a restart.
LOWEST, HIGHEST = 15000, 32000
PORTS_OF_A_PROCESS = 2000
_candidates = (LOWEST + step % (HIGHEST - LOWEST) for step in itertools.count(os.getpid() * PORTS_OF_A_PROCESS))


def free_ports(count: int) -> list[int]:
    """Different ports that nobody uses at this moment, and that no call before this one gave out.

    Each process begins to look at a place of its own, so that two of them do not take the same before they use it.
    """
    return list(itertools.islice(filter(is_free, _candidates), count))


def is_free(port: int) -> bool:
    """Whether one could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def listens(port: int) -> bool:
    """Whether somebody listens on that port; looked up, because a trial connection would be forwarded."""
    wanted = f"0100007F:{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[1] == wanted and fields[3] == LISTENING for fields in map(str.split, lines))
