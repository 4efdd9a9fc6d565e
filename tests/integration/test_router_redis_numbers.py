"""Routers of one pool hear of each other through a real Redis, and do without it when it is away, slow or wrong."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from support.redis_server import RedisServer
from support.router_peers import POOL, Peer
from support.settle import assert_becomes
from tokenpool_router.shared import OwnNumbers
from tokenpool_router.shared.door import Door, Unreachable
from tokenpool_router.shared.exchange import EXPIRY_SECONDS, Exchange
from tokenpool_router.shared.keys import Keys
from tokenpool_router.shared.merging import Merging
from tokenpool_router.shared.together import FADE_SECONDS

BUSY = OwnNumbers({"shard-0": (700, 2)}, {"alice": (5000, 1)})
KEYS = Keys(POOL)


async def becomes(check: Callable[[], bool], within_seconds: float = 10.0) -> None:
    async def predicate() -> bool:
        return check()

    await assert_becomes(predicate, within_seconds=within_seconds)


def say(path: Path, url: str) -> None:
    """As a Secret's folder does it: never half a file."""
    fresh = path.with_suffix(".new")
    fresh.write_text(url)
    fresh.replace(path)


@pytest.fixture
async def one(url_file: Path) -> AsyncIterator[Peer]:
    async with Peer(url_file, "router-1").running() as peer:
        peer.numbers = BUSY
        yield peer


@pytest.fixture
async def other(url_file: Path, one: Peer) -> AsyncIterator[Peer]:
    """Hears of `one`."""
    async with Peer(url_file, "router-2").running() as peer:
        await becomes(lambda: peer.heard.shards == BUSY.shards)
        yield peer


async def test_two_routers_hear_of_each_other(one: Peer, other: Peer) -> None:
    assert other.heard.callers == {"alice": (0, 1)}  # what was used before we were there is not charged
    one.numbers = OwnNumbers({"shard-0": (10, 1)}, {"alice": (5600, 0), "bob": (30, 0)})
    other.numbers = OwnNumbers({"shard-1": (9, 1)})
    await becomes(lambda: dict(other.heard.callers) == {"alice": (600, 0), "bob": (30, 0)})
    await becomes(lambda: dict(other.heard.shards) == {"shard-0": (10, 1)})
    await becomes(lambda: dict(one.heard.shards) == {"shard-1": (9, 1)})
    assert one.shared.state.connected
    assert one.shared.state.routers == 1
    assert (one.shared.state.age_seconds or 9.0) < 2.0


async def test_three_routers_add_up(url_file: Path, one: Peer, other: Peer) -> None:
    async with Peer(url_file, "router-3").running() as third:
        other.numbers = OwnNumbers({"shard-0": (4, 1), "shard-7": (1, 1)})
        await becomes(lambda: dict(third.heard.shards) == {"shard-0": (704, 3), "shard-7": (1, 1)})


async def test_pools_do_not_mix(one: Peer, url_file: Path) -> None:
    heard: list[Any] = []
    exchange = Exchange(door := Door(url_file), Keys("default/other"), "router-9", "born")
    heard.append(await exchange.round(OwnNumbers()))
    assert heard[0].published == {}
    await door.close()


async def test_who_stops_in_good_order_is_gone_at_once(url_file: Path, other: Peer) -> None:
    async with Peer(url_file, "router-3").running() as third:
        third.numbers = OwnNumbers({"shard-9": (3, 1)})
        await becomes(lambda: "shard-9" in other.heard.shards)
    await becomes(lambda: "shard-9" not in other.heard.shards, within_seconds=EXPIRY_SECONDS / 2)


@pytest.mark.parametrize("asked", ["", "?socket_timeout=30&protocol=3"])
async def test_whenever_it_is_cancelled_it_ends(url_file: Path, redis_server: RedisServer, asked: str) -> None:
    say(url_file, redis_server.url + asked)
    for number in range(100):
        task = asyncio.create_task(Peer(url_file, f"router-{number}").shared.run())
        await asyncio.sleep(0.0005 + number * 0.00005)  # from before the connection to after the first exchange
        task.cancel()
        ended, _ = await asyncio.wait([task], timeout=5)
        assert ended, number


async def test_who_dies_vanishes_by_expiry_and_what_it_used_stays(url_file: Path, redis_server: RedisServer) -> None:
    door = Door(url_file)
    dying = Exchange(door, KEYS, "router-1", "born")
    async with Peer(url_file, "router-2").running() as peer:
        await dying.round(OwnNumbers({}, {"alice": (100, 0)}))
        await becomes(lambda: peer.heard.callers == {"alice": (0, 0)})
        await dying.round(OwnNumbers({"shard-0": (8, 1)}, {"alice": (150, 1)}))
        await becomes(lambda: peer.heard.callers == {"alice": (50, 1)})
        await becomes(lambda: not peer.heard.shards, within_seconds=EXPIRY_SECONDS + 2)
        assert peer.heard.callers == {"alice": (50, 0)}
        assert peer.shared.state.connected
        with redis_server.client() as client:
            assert client.zrange(KEYS.members, 0, -1) == [b"router-2"]
    await door.close()


async def test_a_killed_server_is_forgotten_and_found_again(other: Peer, redis_server: RedisServer) -> None:
    redis_server.kill()
    await becomes(lambda: not other.heard.shards, within_seconds=FADE_SECONDS + 1)
    assert other.heard.callers == {"alice": (0, 0)}
    assert not other.shared.state.connected
    assert "ConnectionError" in other.shared.state.error
    redis_server.start()
    await becomes(lambda: other.heard.shards == BUSY.shards)
    assert other.shared.state.connected
    assert not other.shared.state.error


async def test_a_stopped_server_holds_nobody_up(other: Peer, redis_server: RedisServer) -> None:
    other.vocabulary = dict.fromkeys(range(200_000), 1)
    loop = asyncio.get_running_loop()
    redis_server.pause()
    stopped_at, files = loop.time(), len(os.listdir("/proc/self/fd"))
    await becomes(lambda: not other.heard.shards, within_seconds=FADE_SECONDS + 1)
    faded_after = loop.time() - stopped_at
    assert faded_after < FADE_SECONDS + 0.5
    await becomes(lambda: "no answer within 1 s" in other.shared.state.error)
    await becomes(lambda: "no answer within 1 s" in other.shared.state.vocabulary_error)
    assert not other.shared.state.connected
    await asyncio.sleep(3 * FADE_SECONDS)  # several tries
    assert len(os.listdir("/proc/self/fd")) <= files + 2
    redis_server.resume()
    await becomes(lambda: other.heard.shards == BUSY.shards)


async def test_the_loop_is_never_held_up(other: Peer, redis_server: RedisServer) -> None:
    redis_server.pause()
    loop = asyncio.get_running_loop()
    worst, before = 0.0, loop.time()
    while not other.shared.state.error:
        await asyncio.sleep(0.01)
        worst, before = max(worst, loop.time() - before), loop.time()
    assert worst < 0.5
    redis_server.resume()


@pytest.mark.parametrize("garbage", [b"", b"[]", b"\xff\x00", b'{"born":"x","shards":{"a":[-1,0]},"callers":{}}'])
async def test_garbage_of_one_router_spoils_only_itself(
    one: Peer, other: Peer, redis_server: RedisServer, garbage: bytes
) -> None:
    with redis_server.client() as client:
        client.zadd(KEYS.members, {"evil": client.zscore(KEYS.members, "router-1")})
        client.set(KEYS.numbers("evil"), garbage, ex=2)
        one.numbers = OwnNumbers({"shard-0": (1, 1)})
        await becomes(lambda: dict(other.heard.shards) == {"shard-0": (1, 1)})
    assert other.shared.state.connected
    assert (other.shared.state.unreadable > 0) == bool(garbage)


async def test_a_wrong_type_at_a_routers_key_spoils_only_that_router(
    one: Peer, other: Peer, redis_server: RedisServer
) -> None:
    with redis_server.client() as client:
        client.zadd(KEYS.members, {"evil": client.zscore(KEYS.members, "router-1")})
        client.rpush(KEYS.numbers("evil"), "a list")
    await becomes(lambda: other.shared.state.unreadable > 0)
    one.numbers = OwnNumbers({"shard-0": (1, 1)})
    await becomes(lambda: dict(other.heard.shards) == {"shard-0": (1, 1)})


async def test_huge_and_countless_values_are_not_read(one: Peer, other: Peer, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        now = client.zscore(KEYS.members, "router-1")
        client.zadd(KEYS.members, {f"evil-{number}": now - 1 for number in range(500)})
        client.set(KEYS.numbers("evil-1"), b"x" * (2 << 20))
        await becomes(lambda: other.shared.state.routers_left_out >= 500 - 64)
    one.numbers = OwnNumbers({"shard-0": (1, 1)})
    await becomes(lambda: dict(other.heard.shards) == {"shard-0": (1, 1)})


async def test_beats_from_the_future_do_not_stay(other: Peer, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.zadd(KEYS.members, {"evil": 1e15})
        await becomes(lambda: client.zscore(KEYS.members, "evil") is None)


async def test_a_wrong_type_at_the_pools_key_is_told_and_survived(other: Peer, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        pipeline = client.pipeline().delete(KEYS.members)
        pipeline.set(KEYS.members, "a string").execute()
        await becomes(lambda: "WRONGTYPE" in other.shared.state.error)
        await becomes(lambda: not other.heard.shards)
        client.delete(KEYS.members)
    await becomes(lambda: other.heard.shards == BUSY.shards)


async def test_a_read_only_server_is_told_and_survived(other: Peer, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.replicaof("127.0.0.1", "1")  # nobody is there
        await becomes(lambda: "read only replica" in other.shared.state.error.lower())
        client.replicaof("NO", "ONE")
    await becomes(lambda: other.heard.shards == BUSY.shards)


async def test_a_full_server_is_told_and_survived(other: Peer, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        await becomes(lambda: "OOM" in other.shared.state.error or "OutOfMemory" in other.shared.state.error)
        client.config_set("maxmemory", 0)
    await becomes(lambda: other.heard.shards == BUSY.shards)


async def test_a_password_rotates_and_is_never_told(
    one: Peer, other: Peer, redis_server: RedisServer, url_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    redis_server.change_password("hunter2/ä")
    await becomes(lambda: "Authentication" in other.shared.state.error)
    say(url_file, f"redis://:wrong-word@127.0.0.1:{redis_server.port}")
    await becomes(lambda: "invalid username-password" in other.shared.state.error)
    say(url_file, redis_server.url)
    await becomes(lambda: other.shared.state.connected and other.heard.shards == BUSY.shards)
    assert "hunter2" not in caplog.text + str(other.shared.state)
    assert "wrong-word" not in caplog.text


async def test_another_url_is_taken_up_while_all_is_well(other: Peer, url_file: Path) -> None:
    say(url_file, "redis://127.0.0.1:1/0")
    await becomes(lambda: "ConnectionError" in other.shared.state.error)


@pytest.mark.parametrize(
    "text", ["", "secret", "http://:secret@x", "redis://:secret@x:port", "redis://", "\x00" * 5000]
)
async def test_a_file_that_is_no_url_is_told_without_its_content(url_file: Path, text: str) -> None:
    say(url_file, text)
    async with Peer(url_file, "router-1").running() as peer:
        await becomes(lambda: "holds no URL" in peer.shared.state.error)
        assert "secret" not in peer.shared.state.error


async def test_a_missing_file_is_told_and_waited_for(
    url_file: Path, redis_server: RedisServer, one: Peer, other: Peer
) -> None:
    os.unlink(url_file)
    await becomes(lambda: "cannot read" in other.shared.state.error)
    say(url_file, redis_server.url)
    await becomes(lambda: other.heard.shards == BUSY.shards)


LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*-7\r\n", b"$9999999999\r\nx", b"+OK\r\n", LOADING]
)
async def test_a_server_that_is_no_redis_is_survived(tmp_path: Path, answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        path = tmp_path / "url"
        say(path, f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with Peer(path, "router-1").running() as peer:
            await becomes(lambda: bool(peer.shared.state.error and peer.shared.state.vocabulary_error))
            assert not peer.shared.state.connected
            if answer == LOADING:
                assert "loading" in peer.shared.state.error.lower()


async def test_an_answer_too_late_is_not_taken_for_the_next(url_file: Path, redis_server: RedisServer) -> None:
    door = Door(url_file, deadline_seconds=0.3)
    assert await door.run("return 'first'", ()) == b"first"
    redis_server.pause()
    with pytest.raises(Unreachable):
        await door.run("return 'late'", ())
    redis_server.resume()
    assert await door.run("return 'next'", ()) == b"next"
    await door.close()


async def test_a_batch_whose_answer_was_lost_is_not_put_in_twice(url_file: Path, redis_server: RedisServer) -> None:
    merging = Merging(door := Door(url_file), KEYS, "born")
    assert await merging.send(1, b'{"5":1}')
    assert await merging.send(1, b'{"5":1}')
    assert await merging.send(2, b'{"5":1}')
    with redis_server.client() as client:
        assert client.xlen(KEYS.batches) == 2
    await door.close()
