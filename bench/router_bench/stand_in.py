"""`python -m router_bench.stand_in PORT`: stands in for a pool's shards, with as little work as it can be done with."""

import asyncio
import sys
from typing import cast

import uvloop

from router_bench import wire

BURST = {with_ids: wire.burst(with_ids=with_ids) for with_ids in (False, True)}
HEAD = {with_ids: wire.head(with_ids=with_ids) for with_ids in (False, True)}
EVENT = {with_ids: wire.event(with_ids=with_ids) for with_ids in (False, True)}
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
MODELS = b'{"object":"list","data":[{"id":"burst","object":"model"},{"id":"paced","object":"model"}]}'


class StandIn(asyncio.Protocol):
    """One connection of a proxy."""

    def __init__(self) -> None:
        self._held = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy came."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Whole requests are answered; bodies come with a length, or chunked from some proxies."""
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            stop = self._stop(head, end + 4)
            if stop < 0:
                return
            body, self._held = self._held[end + 4 : stop], self._held[stop:]
            self._answer(head, body)

    def _stop(self, head: bytes, start: int) -> int:
        """Where the request ends, -1 while it has not come."""
        at = head.find(b"content-length: ")
        if at >= 0:
            stop = start + int(head[at + 16 :].split(b"\r\n", 1)[0])
            return stop if len(self._held) >= stop else -1
        if b"transfer-encoding: chunked" in head:
            last = self._held.find(wire.LAST, start)
            return last + len(wire.LAST) if last >= 0 else -1
        return start

    def _answer(self, head: bytes, body: bytes) -> None:
        with_ids = wire.ASKS_FOR_IDS in head
        if head.startswith(b"get"):
            self._transport.write(JSON % (len(MODELS), MODELS))
        elif b'"paced"' in body:
            self._transport.write(HEAD[with_ids])
            self._loop.call_later(0, self._pace, wire.PACED_EVENTS, with_ids)
        elif b'"held"' in body:
            self._transport.write(HEAD[with_ids] + EVENT[with_ids])
        else:
            self._transport.write(BURST[with_ids])

    def _pace(self, left: int, with_ids: bool) -> None:
        if self._transport.is_closing():
            return
        if not left:
            self._transport.write(wire.framed(wire.DONE) + wire.LAST)
            return
        self._transport.write(EVENT[with_ids])
        self._loop.call_later(wire.PACE_SECONDS, self._pace, left - 1, with_ids)


async def main(port: int) -> None:
    """Serve until killed."""
    await asyncio.get_running_loop().create_server(StandIn, "0.0.0.0", port, backlog=8192)  # noqa: S104 - all of 127.0.0.0/8
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
