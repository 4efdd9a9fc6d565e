"""What the pool's other routers have on each shard, asked from them directly and often.

Every router at its own times: if all looked at the same moment, all would pick the same shard after it. Nothing else
has to be installed for it, and nobody in between can be gone. Callers' quotas are not asked for: they must not be
charged twice, which needs a memory of what was heard before (`shared`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from tokenpool_router.shared.messages import MOST_BYTES, OwnNumbers, Pair, Unreadable, decode, encode

log = logging.getLogger(__name__)

PATH_NUMBERS: Final = "/numbers"
# Readings this old cost the slowest answers some percent, and of a fifth of a second a quarter (make bench-replay).
BUSY_SECONDS: Final = 0.05
# More routers are asked more rarely: what that costs a router stays below some percent of a core.
SECONDS_PER_PEER: Final = 0.005
IDLE_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 0.25
FADE_SECONDS: Final = 2.0
# A router that does not answer is not asked at each round: it would slow down the hearing of the others.
REST_SECONDS: Final = 1.0
# Only quotas need to know of restarts.
BORN: Final = "any"

OnHeard = Callable[[Mapping[str, Pair] | None], None]


def told(shards: Mapping[str, Pair]) -> bytes:
    """What a router answers: its tokens and requests by shard."""
    return encode(OwnNumbers(shards), BORN)


@dataclass
class Peer:
    """Another router."""

    address: str
    shards: Mapping[str, Pair] = field(default_factory=dict)
    heard_at: float = float("-inf")
    not_before: float = 0.0


class Peers:
    """The other routers. `on_heard` gets their sums by shard, None when nobody was heard lately."""

    def __init__(self, own_name: str, port: int, own: Callable[[], Mapping[str, Pair]], on_heard: OnHeard) -> None:
        self._own_name, self._port, self._own, self._on_heard = own_name, port, own, on_heard
        self._peers: dict[str, Peer] = {}
        self._told_any = False

    def set_hosts(self, hosts: Mapping[str, str]) -> None:
        """Addresses by pod name, ours among them."""
        addresses = {name: f"{host}:{self._port}" for name, host in hosts.items() if name != self._own_name}
        before, self._peers = self._peers, {}
        for name, address in addresses.items():
            known = before.get(name)
            self._peers[name] = known if known and known.address == address else Peer(address)

    def heard(self, now: float) -> int:
        """How many were heard lately."""
        return sum(now - peer.heard_at <= FADE_SECONDS for peer in self._peers.values())

    async def run(self) -> None:
        """Ask until cancelled."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                await self._round(session)
                await asyncio.sleep(self._pause() * random.uniform(0.8, 1.2))  # noqa: S311 - not in step with others

    async def _round(self, session: aiohttp.ClientSession) -> None:
        now = asyncio.get_running_loop().time()
        due = [(name, peer) for name, peer in self._peers.items() if now >= peer.not_before]
        await asyncio.gather(*(self._ask(session, name, peer) for name, peer in due))
        self._tell(asyncio.get_running_loop().time())

    async def _ask(self, session: aiohttp.ClientSession, name: str, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with session.get(f"http://{peer.address}{PATH_NUMBERS}") as answer:
                answer.raise_for_status()
                body = await answer.content.read(MOST_BYTES + 1)
            peer.shards, peer.heard_at = decode(body).numbers.shards, loop.time()
        except (OSError, aiohttp.ClientError, TimeoutError, Unreadable) as error:
            if loop.time() - peer.heard_at <= FADE_SECONDS:
                log.info("router %s is not heard: %s", name, error or type(error).__name__)
            peer.not_before = loop.time() + REST_SECONDS

    def _tell(self, now: float) -> None:
        sums: dict[str, Pair] = {}
        for peer in self._peers.values():
            if now - peer.heard_at <= FADE_SECONDS:
                for name, (tokens, requests) in peer.shards.items():
                    had = sums.get(name, (0, 0))
                    sums[name] = (had[0] + tokens, had[1] + requests)
        is_heard = self.heard(now) > 0
        if is_heard or self._told_any:
            self._on_heard(sums if is_heard else None)
        self._told_any = is_heard

    def _pause(self) -> float:
        numbers = [self._own(), *(peer.shards for peer in self._peers.values())]
        is_busy = any(requests for shards in numbers for _, requests in shards.values())
        return BUSY_SECONDS + SECONDS_PER_PEER * len(self._peers) if self._peers and is_busy else IDLE_SECONDS
