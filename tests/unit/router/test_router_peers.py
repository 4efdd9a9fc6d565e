"""Routers that ask each other: what is heard, from whom, and what happens when somebody is silent or strange."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tokenpool_router.control import peers as module
from tokenpool_router.control.peers import PATH_NUMBERS, Peers, told

Pair = tuple[int, int]
Loads = dict[str, Pair]


class OtherRouter:
    """Answers as a router's admin port does; `body` may be changed to what no router would say."""

    def __init__(self, loads: Loads) -> None:
        self.body = told(loads)
        self.asked = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        await self.go_on.wait()
        return web.Response(body=self.body)


@asynccontextmanager
async def serving(router: OtherRouter, host: str, port: int = 0) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get(PATH_NUMBERS, router.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    yield runner.addresses[0][1]
    router.go_on.set()
    await runner.cleanup()


class Listener:
    """What one router has, and what it hears."""

    def __init__(self, port: int) -> None:
        self.own: Loads = {"a": (5, 1)}
        self.heard: list[Mapping[str, Pair] | None] = []
        self.peers = Peers("me", port, lambda: self.own, self.heard.append)

    async def until(self, wanted: Callable[[Mapping[str, Pair] | None], bool]) -> None:
        async with asyncio.timeout(10):
            while not self.heard or not wanted(self.heard[-1]):
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.peers.run())
        yield
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_loads_of_all_others_are_added_up_and_ours_are_not_among_them() -> None:
    first, second = OtherRouter({"a": (10, 1), "b": (20, 2)}), OtherRouter({"a": (100, 3)})
    async with serving(first, "127.0.0.2") as port, serving(second, "127.0.0.3", port):
        listener = Listener(port)
        listener.peers.set_hosts({"me": "127.0.0.9", "r-2": "127.0.0.2", "r-3": "127.0.0.3"})
        async with listener.running():
            await listener.until(lambda sums: sums == {"a": (110, 4), "b": (20, 2)})
            assert listener.peers.heard(asyncio.get_running_loop().time()) == 2
            listener.peers.set_hosts({"me": "127.0.0.9", "r-3": "127.0.0.3"})
            await listener.until(lambda sums: sums == {"a": (100, 3)})
            listener.peers.set_hosts({"me": "127.0.0.9"})
            await listener.until(lambda sums: sums is None)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"born":"x","shards":{"a":[-1,0]},"callers":{}}', b"x" * (2 << 20)])
async def test_who_talks_nonsense_is_not_heard_and_nobody_else_suffers(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FADE_SECONDS", 0.3)
    strange, other = OtherRouter({"a": (10, 1)}), OtherRouter({"a": (1, 1)})
    async with serving(strange, "127.0.0.2") as port, serving(other, "127.0.0.3", port):
        listener = Listener(port)
        listener.peers.set_hosts({"r-2": "127.0.0.2", "r-3": "127.0.0.3"})
        async with listener.running():
            await listener.until(lambda sums: sums == {"a": (11, 2)})
            strange.body = body
            await listener.until(lambda sums: sums == {"a": (1, 1)})
            strange.body = told({"a": (7, 7)})
            await listener.until(lambda sums: sums == {"a": (8, 8)})


async def test_one_that_hangs_or_is_gone_fades_and_is_asked_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FADE_SECONDS", 0.5)
    hanging, other = OtherRouter({"a": (10, 1)}), OtherRouter({"a": (1, 1)})
    async with serving(hanging, "127.0.0.2") as port, serving(other, "127.0.0.3", port):
        listener = Listener(port)
        listener.peers.set_hosts({"r-2": "127.0.0.2", "r-3": "127.0.0.3", "gone": "127.0.0.4"})
        async with listener.running():
            await listener.until(lambda sums: sums == {"a": (11, 2)})
            hanging.go_on.clear()
            await listener.until(lambda sums: sums == {"a": (1, 1)})
            asked, others = hanging.asked, other.asked
            await asyncio.sleep(1)
            assert hanging.asked - asked <= 2
            assert other.asked - others > 2


async def test_nothing_is_said_of_others_where_there_are_none() -> None:
    listener = Listener(1)
    async with listener.running():
        await asyncio.sleep(0.1)
    assert listener.heard == []
