"""One try on one shard: connect, send, listen, give everything back. It decides nothing about the next try."""

from typing import TYPE_CHECKING, Protocol

from tokenpool_router.http.messages import ResponseHead
from tokenpool_router.http.upstream import Pool, UpstreamConnection
from tokenpool_router.sharding import Lease

if TYPE_CHECKING:
    import asyncio


class Traveller(Protocol):
    """Whose try it is."""

    def on_head(self, head: ResponseHead) -> None:
        """Status and headers are here."""

    def on_answer(self, data: bytes, ended: bool) -> None:
        """A part of the body. At its end the lease is given back already."""

    def on_unreachable(self) -> None:
        """No connection; the lease is given back already."""

    def on_lost(self) -> None:
        """The shard was lost after it had the request; the lease is given back already."""

    def on_bug(self) -> None:
        """A call of ours raised; to be called in an `except` block."""


class Attempt:
    """Holds a lease from its making until its end, and gives it back exactly once."""

    __slots__ = (
        "_connecting",
        "_head_only",
        "_is_second",
        "_paused",
        "_pool",
        "_request",
        "_traveller",
        "_upstream",
        "lease",
    )

    def __init__(self, traveller: Traveller, lease: Lease, pool: Pool) -> None:
        self._traveller, self.lease, self._pool = traveller, lease, pool
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[UpstreamConnection] | None = None
        self._request, self._head_only = b"", False
        self._is_second = False
        self._paused = False

    def start(self, request: bytes, now: float, *, head_only: bool, paused: bool) -> None:
        """Send the request, on a kept connection if there is one."""
        self._request, self._head_only, self._paused = request, head_only, paused
        connection = self._pool.take(self.lease.shard.address, now)
        if connection:
            self._send(connection)
        else:
            self._connect()

    def _connect(self) -> None:
        self._connecting = self._pool.open(self.lease.shard.address, self._connected, self._unreachable)

    def _connected(self, connection: UpstreamConnection) -> None:
        self._connecting = None
        try:
            self._send(connection)
        except Exception:
            self._traveller.on_bug()

    def _unreachable(self) -> None:
        self._connecting = None
        self.lease.release()
        try:
            self._traveller.on_unreachable()
        except Exception:
            self._traveller.on_bug()

    def _send(self, connection: UpstreamConnection) -> None:
        self._upstream = connection
        connection.exchange(self._request, self, head_only=self._head_only)
        if self._paused:
            connection.pause(True)

    def silence(self, now: float) -> float:
        """Seconds since the shard was last heard; 0 while the silence is the client's, or none could be heard."""
        return 0.0 if self._paused or self._upstream is None else now - self._upstream.heard_at

    def pause(self, paused: bool) -> None:
        """The client is slow (True) or caught up (False)."""
        self._paused = paused
        if self._upstream:
            self._upstream.pause(paused)

    def stop(self) -> None:
        """Nobody wants the answer: the closed connection tells the shard so."""
        if self._connecting:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream:
            self._upstream.close()
            self._upstream = None
        if self.lease.is_open:
            self.lease.release()

    # --- the connection's calls ------------------------------------------------------------------------------------
    def on_head(self, head: ResponseHead) -> None:
        """Status and headers are here: the request is not sent again on another connection."""
        self._request = b""
        try:
            self._traveller.on_head(head)
        except Exception:
            self._traveller.on_bug()

    def on_answer(self, data: bytes, ended: bool) -> None:
        """A part of the body."""
        if ended:
            self._give_back()
        try:
            self._traveller.on_answer(data, ended)
        except Exception:
            self._traveller.on_bug()

    def _give_back(self) -> None:
        connection, self._upstream = self._upstream, None
        self.lease.release()
        if connection:
            if self._paused:
                # The client was slow; the next one is not to wait for it.
                connection.pause(False)
            self._pool.give_back(self.lease.shard.address, connection, connection.heard_at)

    def on_lost(self, answered: bool) -> None:
        """A kept connection that turns out dead gets one fresh one: the shard may have closed it for its idleness."""
        connection, self._upstream = self._upstream, None
        if connection and connection.used and not answered and not self._is_second:
            self._is_second = True
            self._connect()
            return
        self.lease.release()
        try:
            self._traveller.on_lost()
        except Exception:
            self._traveller.on_bug()
