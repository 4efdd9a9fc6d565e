"""The pool's counts in a real Redis: one merger at a time, stale ones refused, and no batch counts twice or is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.redis_server import RedisServer
from support.router_peers import POOL, MergerProcess, Peer
from support.settle import assert_becomes
from tokenpool_router.shared.door import Door, Unreachable
from tokenpool_router.shared.keys import Keys
from tokenpool_router.shared.merging import MOST_BATCHES, Merging, do_work
from tokenpool_router.shared.vocabulary import MOST_BATCH_BYTES, MOST_COUNTED, MOST_TABLE_BYTES, encode_batch

KEYS = Keys(POOL)
LOCK, FENCE, _, TABLE = KEYS.merging
LEASE_SECONDS = 1.0


@contextlib.asynccontextmanager
async def router(url_file: Path, token: str) -> AsyncIterator[Merging]:
    door = Door(url_file)
    try:
        yield Merging(door, KEYS, token, lease_seconds=LEASE_SECONDS, pause_seconds=0.0)
    finally:
        await door.close()


@pytest.fixture
async def one(url_file: Path) -> AsyncIterator[Merging]:
    async with router(url_file, "one") as merging:
        yield merging


@pytest.fixture
async def other(url_file: Path) -> AsyncIterator[Merging]:
    async with router(url_file, "other") as merging:
        yield merging


@contextlib.contextmanager
def processes(url_file: Path, names: list[str], lease_seconds: float = LEASE_SECONDS) -> Iterator[list[MergerProcess]]:
    started = [MergerProcess(url_file, name, lease_seconds) for name in names]
    try:
        assert [process.says() for process in started] == ["ready"] * len(names)
        yield started
    finally:
        for process in started:
            process.end()


async def merge(merging: Merging) -> bool:
    work = await merging.begin()
    assert work is not None
    return await merging.commit(do_work(work))


async def test_batches_of_all_routers_are_merged(one: Merging, other: Merging) -> None:
    await one.send(1, encode_batch({1: 2, 5: 1}))
    await other.send(1, encode_batch({5: 4}))
    assert await merge(one)
    assert await one.begin() is None  # nothing is due
    await other.send(2, encode_batch({1: 1}))
    assert await merge(other)
    assert await one.table() == {1: 3, 5: 5}


async def test_one_of_many_processes_gets_the_lock(url_file: Path, one: Merging) -> None:
    await one.send(1, encode_batch({7: 1}))
    with processes(url_file, [f"router-{number}" for number in range(6)], lease_seconds=30.0) as started:
        for process in started:
            process.go_on()
        said = [process.says() for process in started]
        assert sorted(said) == ["locked 1", *["nothing"] * 5]
        holder = started[said.index("locked 1")]
        holder.go_on()
        assert holder.says() == "written"
    assert await one.table() == {7: 1}


async def test_a_holder_stopped_past_its_lease_is_refused(
    url_file: Path, one: Merging, redis_server: RedisServer
) -> None:
    await one.send(1, encode_batch({7: 1}))
    with processes(url_file, ["sleeper"]) as (sleeper,):
        sleeper.go_on()
        assert sleeper.says() == "locked 1"
        sleeper.stop()
        assert await one.begin() is None  # the lock holds
        await expire(redis_server)
        await one.send(2, encode_batch({7: 10}))
        assert await merge(one)
        sleeper.resume()
        sleeper.go_on()
        assert sleeper.says() == "refused"
    assert await one.table() == {7: 11}


async def test_a_stale_holder_is_refused_before_the_newer_one_writes(
    one: Merging, other: Merging, redis_server: RedisServer
) -> None:
    await one.send(1, encode_batch({7: 1}))
    stale = await one.begin()
    assert stale is not None
    await expire(redis_server)
    newer = await other.begin()
    assert newer is not None
    assert newer.fence > stale.fence
    assert not await one.commit(do_work(stale))
    with redis_server.client() as client:
        assert client.get(LOCK) == b"other"  # not taken away by the one that was refused
    assert await other.commit(do_work(newer))
    assert not await other.commit(do_work(newer))  # a fence is good for one write
    assert await one.table() == {7: 1}


async def test_a_merger_that_dies_in_the_middle_loses_and_doubles_nothing(
    url_file: Path, one: Merging, redis_server: RedisServer
) -> None:
    await one.send(1, encode_batch({7: 1}))
    with processes(url_file, ["dying"]) as (dying,):
        dying.go_on()
        assert dying.says() == "locked 1"
    await expire(redis_server)
    assert await one.table() == {}
    assert await merge(one)
    assert await one.table() == {7: 1}


async def test_nothing_is_lost_or_doubled_when_routers_and_redis_die(url_file: Path, redis_server: RedisServer) -> None:
    sent = 0
    for round_number in range(4):
        async with (
            Peer(url_file, f"a-{round_number}").running() as a,
            Peer(url_file, f"b-{round_number}").running() as b,
        ):
            for peer in (a, b):
                peer.vocabulary = dict.fromkeys(range(20000), 1)  # three batches
                sent += 1
            await asyncio.sleep(0.1 * round_number)
            redis_server.kill()
            redis_server.start()

            async def all_is_merged(expected: int = sent) -> bool:
                async with router(url_file, "reader") as reader:
                    table = await reader.table()
                return len(table) == 20_000 and set(table.values()) == {expected}

            await assert_becomes(all_is_merged, within_seconds=20)
            assert a.shared.state.batches_sent == b.shared.state.batches_sent == 3
            assert a.shared.state.merges + b.shared.state.merges > 0


async def test_two_mergers_under_load_conserve_every_count(url_file: Path) -> None:
    async def work(token: str) -> None:
        async with router(url_file, token) as merging:
            for sequence in range(1, 41):
                assert await merging.send(sequence, encode_batch({sequence: 1, 999: 2}))
                begun = await merging.begin()
                if begun is not None:
                    await merging.commit(do_work(begun))

    await asyncio.gather(*(work(f"router-{number}") for number in range(4)))
    async with router(url_file, "last") as merging:
        while (begun := await merging.begin()) is not None:
            await merging.commit(do_work(begun))
        table = await merging.table()
    assert table == {**dict.fromkeys(range(1, 41), 4), 999: 320}


async def test_batches_that_find_no_room_wait_at_the_sender(one: Merging, redis_server: RedisServer) -> None:
    for sequence in range(1, MOST_BATCHES + 1):
        assert await one.send(sequence, encode_batch({1: 1}))
    assert not await one.send(MOST_BATCHES + 1, encode_batch({1: 1}))
    assert await merge(one)
    assert await one.send(MOST_BATCHES + 1, encode_batch({1: 1}))
    while (work := await one.begin()) is not None:
        assert await one.commit(do_work(work))
    assert await one.table() == {1: MOST_BATCHES + 1}


async def test_merges_of_the_pool_keep_a_distance(url_file: Path, one: Merging) -> None:
    door = Door(url_file)
    patient = Merging(door, KEYS, "patient", pause_seconds=60.0)
    await one.send(1, encode_batch({1: 1}))
    assert await merge(patient)
    await one.send(2, encode_batch({1: 1}))
    assert await patient.begin() is None
    assert await merge(one)  # its own pause is zero
    await door.close()


async def test_counts_decay_and_stay_bounded(one: Merging) -> None:
    for sequence in range(1, 5):
        await one.send(sequence, encode_batch({1: MOST_COUNTED, 2: 3}))
        assert await merge(one)
    table = await one.table()
    assert sum(table.values()) <= MOST_COUNTED
    assert table[1] > MOST_COUNTED // 4


async def test_garbage_among_batches_and_in_the_table_is_dropped(one: Merging, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.xadd(KEYS.batches, {"counts": b"no json"})
        client.xadd(KEYS.batches, {"other": b"field"})
        client.xadd(KEYS.batches, {"counts": b"1" * (MOST_BATCH_BYTES + 1)})
        client.xadd(KEYS.batches, {"counts": b'{"-1":1,"x":1,"3":-1,"4":true,"2000000":1,"6":2}'})
        client.hset(TABLE, mapping={"counts": b"no table", "fence": b"no number", "merged": b""})
    work = await one.begin()
    assert work is not None
    merged = do_work(work)
    assert merged.unreadable == 4
    assert await one.commit(merged)
    assert await one.table() == {6: 2}
    with redis_server.client() as client:
        client.hset(TABLE, "counts", b"1" * (MOST_TABLE_BYTES + 1))
    assert await one.table() == {}


@pytest.mark.parametrize("key", [KEYS.batches, TABLE, FENCE])
async def test_wrong_types_are_told_and_survived(url_file: Path, redis_server: RedisServer, key: str) -> None:
    with redis_server.client() as client:
        client.set(key, "a string")
        async with Peer(url_file, "router-1").running() as peer:
            peer.vocabulary = {3: 1}

            async def is_told() -> bool:
                return bool(peer.shared.state.vocabulary_error)

            await assert_becomes(is_told)
            assert peer.shared.state.connected  # numbers are exchanged all the same
            client.delete(key)

            async def is_merged() -> bool:
                async with router(url_file, "reader") as reader:
                    return await reader.table() == {3: 1}

            await assert_becomes(is_merged)
            assert not peer.shared.state.vocabulary_error


async def test_a_lost_fence_goes_on_behind_what_was_written(one: Merging, redis_server: RedisServer) -> None:
    for sequence in (1, 2, 3):
        await one.send(sequence, encode_batch({1: 1}))
        assert await merge(one)
        with redis_server.client() as client:
            client.delete(FENCE)  # as a cache that is full does
    assert await one.table() == {1: 3}


async def test_with_its_fence_lost_a_stale_holder_leaves_the_lock_of_another(
    one: Merging, other: Merging, redis_server: RedisServer
) -> None:
    await one.send(1, encode_batch({7: 1}))
    stale = await one.begin()
    await expire(redis_server)
    with redis_server.client() as client:
        client.delete(FENCE)
        newer = await other.begin()
        assert stale is not None
        assert newer is not None
        assert newer.fence == stale.fence  # no number can tell them apart
        assert await one.commit(do_work(stale))
        assert client.get(LOCK) == b"other"
    assert not await other.commit(do_work(newer))
    assert await one.table() == {7: 1}


async def test_a_slow_server_keeps_to_the_deadline_and_the_batch(
    url_file: Path, redis_server: RedisServer, one: Merging
) -> None:
    redis_server.pause()
    begun = asyncio.get_running_loop().time()
    with pytest.raises(Unreachable, match="no answer within 1 s"):
        await one.send(1, encode_batch({1: 1}))
    assert asyncio.get_running_loop().time() - begun < 2.0
    redis_server.resume()
    assert await one.send(1, encode_batch({1: 1}))  # whether or not the first one came after all
    assert await merge(one)
    assert await one.table() == {1: 1}


async def expire(server: RedisServer) -> None:
    """Until the lock has expired by itself."""

    async def is_gone() -> bool:
        with server.client() as client:
            return client.exists(LOCK) == 0

    await assert_becomes(is_gone)
