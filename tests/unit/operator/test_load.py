"""Load: the sum over shards, and when it is told."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tokenpool_api import names
from tokenpool_api.wire import ShardLoad
from tokenpool_operator.load import PUBLISH_SECONDS, LoadBook
from tokenpool_operator.utilization import NOTHING_KNOWN, PoolLoad, summarize

KEY = ("team-a", "chat")


def load(reserved: int, capacity: int = 1000, rate: float = 0.0) -> ShardLoad:
    return ShardLoad(
        ready=True,
        draining=False,
        running_requests=0,
        waiting_requests=0,
        outstanding_tokens=0,
        kv_tokens_reserved=reserved,
        kv_tokens_capacity=capacity,
        prompt_tokens_total=0,
        generated_tokens_total=0,
        steps_total=0,
        tokens_per_second=rate,
    )


@pytest.mark.parametrize(
    ("loads", "total"),
    [
        ([], NOTHING_KNOWN),
        ([load(0)], PoolLoad(0, 0)),
        ([load(500), load(700, rate=12.4)], PoolLoad(60, 12)),
        ([load(2000), load(0, 3000)], PoolLoad(50, 0)),
        ([load(0, 0, rate=3)], PoolLoad(None, 3)),
        ([load(1500)], PoolLoad(150, 0)),
    ],
)
def test_summarize(loads: list[ShardLoad], total: PoolLoad) -> None:
    assert summarize(loads) == total


class Shard:
    """A shard's admin port on loopback; every address leads here."""

    def __init__(self) -> None:
        self.answer: Callable[[], web.StreamResponse] = lambda: self.json(0)
        self.requests = 0

    def json(self, reserved: int) -> web.Response:
        return web.Response(text=load(reserved).model_dump_json(by_alias=True), content_type="application/json")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.path == names.PATH_LOAD
        self.requests += 1
        return self.answer()


class Loopback(aiohttp.abc.AbstractResolver):
    """Names every host 127.0.0.1; together with the session's own port it leads to the test server."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        raise AssertionError("addresses are not resolved")

    async def close(self) -> None:
        return None


@pytest.fixture
async def shard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shard]:
    played = Shard()
    app = web.Application()
    app.router.add_get(names.PATH_LOAD, played.handle)
    async with TestServer(app) as server:
        monkeypatch.setattr(names, "SHARD_ADMIN_PORT", server.port)
        yield played


class Book:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.now = 0.0
        self.rung: list[tuple[str, str]] = []
        self.book = LoadBook(http, self.rung.append, clock=lambda: self.now)

    async def poll(self, addresses: tuple[str, ...] = ("127.0.0.1",)) -> PoolLoad:
        self.book.track(KEY, addresses)
        await self.book.poll_all()
        return self.book.track(KEY, addresses)


@pytest.fixture
async def book() -> AsyncIterator[Book]:
    async with aiohttp.ClientSession() as http:
        yield Book(http)


async def test_a_change_rings_and_the_same_again_does_not(book: Book, shard: Shard) -> None:
    assert await book.poll() == PoolLoad(0, 0)
    book.now += 100
    assert await book.poll() == PoolLoad(0, 0)
    assert book.rung == [KEY]


async def test_it_is_told_at_most_every_ten_seconds(book: Book, shard: Shard) -> None:
    await book.poll()
    shard.answer = lambda: shard.json(500)
    book.now += PUBLISH_SECONDS - 1
    assert await book.poll() == PoolLoad(0, 0)
    book.now += 1
    assert await book.poll() == PoolLoad(50, 0)
    assert book.rung == [KEY, KEY]


async def test_less_than_a_percent_is_no_change(book: Book, shard: Shard) -> None:
    await book.poll()
    shard.answer = lambda: shard.json(4)
    book.now += 100
    assert await book.poll() == PoolLoad(0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=500),
        lambda: web.Response(text="hello"),
        lambda: web.Response(text='{"ready": true}'),
        lambda: web.Response(text=load(0).model_dump_json(by_alias=True).replace("0.0", "NaN")),
    ],
)
async def test_a_shard_that_answers_nonsense_is_left_out(book: Book, shard: Shard, answer: Any) -> None:
    shard.answer = answer
    assert await book.poll() == NOTHING_KNOWN


async def test_a_shard_that_is_not_there_is_left_out(book: Book, shard: Shard) -> None:
    assert await book.poll(("127.0.0.1", "127.0.0.2")) == PoolLoad(0, 0)


async def test_a_pool_without_ready_shards_is_not_asked(book: Book, shard: Shard) -> None:
    await book.poll()
    assert await book.poll(()) == NOTHING_KNOWN
    assert shard.requests == 1
    book.book.forget(KEY)
    await book.book.poll_all()
    assert shard.requests == 1
