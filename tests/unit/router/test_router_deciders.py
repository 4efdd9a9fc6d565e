"""The router's deciders: who is picked, who is a member, what a request is worth, who waits."""

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_router.admission import Refused, WaitingRoom
from tokenpool_router.balancer import Balancer, Lease, Member, UnknownShard
from tokenpool_router.estimate import estimate_tokens
from tokenpool_router.membership import members, static_members
from tokenpool_router.http.messages import Headers, Request, ResponseHead
from tokenpool_router.settings import parse
from tokenpool_router.journey.transfer import events_end


def balancer(*names: str) -> Balancer:
    made = Balancer()
    made.set_members(Shard(name, f"{name}:8000") for name in names)
    return made


def pick(subject: Balancer, tokens: int, **options: Any) -> Lease:
    lease = subject.acquire(tokens, now=options.pop("now", 0.0), **options)
    assert lease
    return lease


def test_the_least_loaded_shard_is_picked_and_ties_go_round() -> None:
    subject = balancer("a", "b", "c")
    assert [pick(subject, tokens).member.name for tokens in (10, 30, 20, 5, 1)] == ["a", "b", "c", "a", "a"]
    assert [load.outstanding_tokens for load in subject.loads(now=0)] == [16, 30, 20]
    even = balancer("a", "b", "c")
    assert [pick(even, 0).member.name for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_a_lease_shrinks_and_is_given_back_once() -> None:
    subject = balancer("a")
    lease = pick(subject, 10)
    lease.progress(4)
    lease.progress(-3)
    assert subject.load("a", now=0).outstanding_tokens == 6
    lease.progress(100)
    assert subject.load("a", now=0).outstanding_tokens == 0
    lease.release()
    assert subject.load("a", now=0).in_flight == 0
    with pytest.raises(RuntimeError, match="released already"):
        lease.release()


def test_wrong_names_and_negative_tokens_are_errors() -> None:
    with pytest.raises(UnknownShard):
        balancer("a").load("b", now=0)
    with pytest.raises(ValueError, match="negative"):
        balancer("a").acquire(-1, now=0)


def test_a_failed_shard_rests_longer_each_time_unless_it_is_the_only_one() -> None:
    subject = balancer("a", "b")
    subject.failed("a", now=0.0)
    assert pick(subject, 0, now=0.9).member.name == "b"
    assert pick(subject, 0, now=1.1).member.name == "a"
    subject.failed("a", now=1.1)
    assert pick(subject, 0, now=3.0).member.name == "b"
    subject.failed("b", now=3.0)
    assert pick(subject, 0, now=3.0).member.name in "ab", "better a shard that failed than none"
    subject.succeeded("a")
    assert [load.ejected for load in subject.loads(now=3.0)] == [False, True]
    subject.failed("gone", now=3.0)


def test_members_are_replaced_and_who_stays_keeps_its_account() -> None:
    subject = balancer("a", "b")
    old = pick(subject, 10)
    pick(subject, 20)
    subject.set_members([Shard("b", "b:8000"), Shard("a", "elsewhere:8000")])
    assert {load.member.name: load.outstanding_tokens for load in subject.loads(now=0)} == {"a": 0, "b": 20}
    old.release()
    assert subject.load("a", now=0).outstanding_tokens == 0, "the lease was on the shard before it"
    assert subject.acquire(1, now=0, exclude={Shard("a", "elsewhere:8000"), Shard("b", "b:8000")}) is None
    assert Balancer().acquire(1, now=0) is None


@given(st.lists(st.tuples(st.sampled_from(["acquire", "progress", "release"]), st.integers(0, 9)), max_size=80))
def test_accounts_add_up_over_any_history(history: list[tuple[str, int]]) -> None:
    subject = balancer("a", "b", "c")
    leases: list[Lease] = []
    for action, number in history:
        if action == "acquire":
            least = min(load.outstanding_tokens for load in subject.loads(now=0))
            lease = pick(subject, number)
            assert subject.load(lease.member.name, now=0).outstanding_tokens - number == least
            leases.append(lease)
        elif leases and action == "progress":
            leases[number % len(leases)].progress(number)
        elif leases:
            leases.pop(number % len(leases)).release()
        for load in subject.loads(now=0):
            mine = [lease for lease in leases if lease.member == load.member]
            assert load.outstanding_tokens == sum(lease.tokens for lease in mine) >= 0
            assert load.in_flight == len(mine)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b"", 257),
        (b'{"max_tokens": 10}', 18 // 4 + 1 + 10),
        (b'{"max_tokens": 10, "max_completion_tokens": 7}', 46 // 4 + 1 + 7),
        (b'{"max_tokens": "many"}', 22 // 4 + 1 + 256),
        (b'{"max_tokens": -5}', 18 // 4 + 1 + 256),
        (b"not json at all.", 5),
        (b"[1]", 1),
        (b'{"max_tokens": 99999999999}', 27 // 4 + 1 + (1 << 20)),
    ],
)
def test_estimates(body: bytes, tokens: int) -> None:
    assert estimate_tokens(body) == tokens


def endpoint(name: str | None, address: str | None = "10.0.0.1", **conditions: bool) -> dict[str, Any]:
    return {
        "addresses": [address] if address else [],
        "conditions": conditions,
        "targetRef": {"name": name} if name else None,
    }


@pytest.mark.parametrize(
    ("endpoints", "wanted"),
    [
        ([endpoint("a", ready=True)], ["a"]),
        ([endpoint("a")], ["a"]),
        ([endpoint("a", ready=False)], []),
        ([endpoint("a", ready=True, terminating=True)], []),
        ([endpoint("a", address=None, ready=True)], []),
        ([endpoint(None, ready=True)], []),
        ([endpoint("b", ready=True), endpoint("a", ready=True), endpoint("b", ready=True)], ["a", "b"]),
        (None, []),
    ],
)
def test_who_is_a_member(endpoints: list[dict[str, Any]] | None, wanted: list[str]) -> None:
    slices: list[dict[str, Any]] = [
        {"endpoints": endpoints, "ports": [{"name": "api", "port": 8000}]},
        {"endpoints": None, "ports": None},
    ]
    assert members(slices) == [Shard(name, "10.0.0.1:8000") for name in wanted]


def test_ports_and_addresses_of_members() -> None:
    slices = [
        {
            "endpoints": [endpoint("a", address="fd00::1")],
            "ports": [{"name": "x", "port": 1}, {"name": "api", "port": 9}],
        }
    ]
    assert members(slices) == [Shard("a", "[fd00::1]:9")]
    assert static_members(["h:1"]) == [Shard("h:1", "h:1")]


async def test_the_waiting_room_is_first_come_first_served() -> None:
    subject, room = balancer(), WaitingRoom(100, 5)
    served: list[int] = []

    def acquire(tokens: int) -> Lease | None:
        lease = subject.acquire(tokens, now=0)
        served.extend([tokens] if lease else [])
        return lease

    waiting = [asyncio.create_task(room.lease(n, partial(acquire, n))) for n in (10, 20)]
    await asyncio.sleep(0)
    assert (len(room), room.tokens) == (2, 30)
    subject.set_members([Shard("a", "a:1")])
    late = await room.lease(1, partial(acquire, 1))
    assert [(await task).tokens for task in waiting] + [late.tokens] == served == [10, 20, 1]
    assert (len(room), room.tokens) == (0, 0)


async def test_who_is_choosy_waits_without_holding_up_the_rest() -> None:
    subject, room = balancer("a"), WaitingRoom(100, 5)
    excluded = {Shard("a", "a:8000")}
    choosy = asyncio.create_task(room.lease(10, lambda: subject.acquire(10, now=0, exclude=excluded), is_choosy=True))
    await asyncio.sleep(0)
    assert (await room.lease(1, lambda: subject.acquire(1, now=0))).member.name == "a"
    assert (choosy.done(), len(room)) == (False, 1)
    subject.set_members([Shard("a", "a:8000"), Shard("b", "b:8000")])
    room.shards_changed()
    assert (await choosy).member.name == "b"


async def test_a_shard_that_the_first_in_line_does_not_want_goes_to_the_next() -> None:
    subject, room = balancer(), WaitingRoom(100, 5)
    excluded = {Shard("a", "a:8000")}
    choosy = asyncio.create_task(room.lease(1, lambda: subject.acquire(1, now=0, exclude=excluded), is_choosy=True))
    behind = asyncio.create_task(room.lease(2, lambda: subject.acquire(2, now=0)))
    await asyncio.sleep(0)
    assert len(room) == 2
    subject.set_members(excluded)
    room.shards_changed()
    assert (await behind).member.name == "a"
    assert (choosy.done(), len(room)) == (False, 1)
    choosy.cancel()


@pytest.mark.looptime
async def test_the_waiting_room_is_bounded_in_tokens_and_time() -> None:
    room = WaitingRoom(100, 30)
    with pytest.raises(Refused) as refused:
        await room.lease(101, lambda: None)
    assert refused.value.refusal.code == "queue_full"
    with pytest.raises(Refused) as refused:
        await room.lease(100, lambda: None)
    assert refused.value.refusal.code == "no_shard"
    assert asyncio.get_running_loop().time() == pytest.approx(30)
    assert (len(room), room.tokens) == (0, 0)


async def test_who_leaves_the_room_gives_back_what_it_just_got() -> None:
    subject, room = balancer(), WaitingRoom(100, 5)
    task = asyncio.create_task(room.lease(10, lambda: subject.acquire(10, now=0)))
    await asyncio.sleep(0)
    subject.set_members([Shard("a", "a:1")])
    room.shards_changed()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (subject.load("a", now=0).outstanding_tokens, len(room)) == (0, 0)


def test_messages_carry_no_headers_of_one_connection() -> None:
    request = Request(
        b"POST",
        b"/x?y",
        ((b"te", b"x"), (b"host", b"pool"), (b"a", b"1"), (b"content-length", b"9"), (b"expect", b"100-continue")),
        b"{}",
        keep_alive=True,
        version="1.1",
        request_id=b"id",
    )
    assert request.to_upstream("shard:1") == (
        b"POST /x?y HTTP/1.1\r\nhost: shard:1\r\na: 1\r\nx-request-id: id\r\ncontent-length: 2\r\n\r\n{}"
    )
    head = ResponseHead(200, b"", ((b"keep-alive", b"5"), (b"b", b"2"), (b"content-length", b"7")), 7)
    assert head.to_client(chunked=False, close=True) == (
        b"HTTP/1.1 200 OK\r\nb: 2\r\ncontent-length: 7\r\nconnection: close\r\n\r\n"
    )
    assert head.with_headers((b"b", b"3")).headers[-1] == (b"b", b"3")
    named = ResponseHead(204, b"", ((b"connection", b"X-Mine , close"), (b"x-mine", b"1"), (b"b", b"2")), 0)
    assert named.to_client(chunked=False, close=False) == b"HTTP/1.1 204 \r\nb: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        (((b"content-type", b"Text/Event-Stream; charset=utf-8"),), True),
        (((b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")), False),
        (((b"content-type", b"application/json"),), False),
        ((), False),
    ],
)
def test_what_is_an_event_stream(headers: Headers, wanted: bool) -> None:
    assert ResponseHead(200, b"", headers).is_event_stream is wanted


@pytest.mark.parametrize(
    ("held", "end"),
    [
        (b"data: 1\n\n", 9),
        (b"data: 1\r\n\r\n", 11),
        (b"data: 1\n\ndata: 2", 9),
        (b"data: 1\r\n\r\ndata: 2\r\n", 11),
        (b"data: 1\n", 0),
        (b"", 0),
    ],
)
def test_where_the_last_whole_event_ends(held: bytes, end: int) -> None:
    assert events_end(bytearray(held)) == end


def test_settings_need_a_pool_or_shards(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--shards", "a:1, [::1]:2,"]).shards == ("a:1", "[::1]:2")
    assert parse(["--pool", "p", "--namespace", "n"]).queue_seconds == 30
    with pytest.raises(SystemExit):
        parse(["--pool", "p"])
    assert "give --pool and --namespace, or --shards" in capsys.readouterr().err
    for wrong in ("a", ":1", "a:", "a:b", "a:0", "a:65536"):
        with pytest.raises(SystemExit):
            parse(["--shards", wrong])
        assert "not host:port" in capsys.readouterr().err
