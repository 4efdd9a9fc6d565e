"""Who leads: several claims on one lease, with clocks that the test moves."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tokenpool_kube import AlreadyExists, Conflict, ServerError
from tokenpool_kube.kinds import Kind
from tokenpool_operator.lease import LEASE_NAME, Leadership

Raw = dict[str, Any]
SECONDS = 15.0


class LeaseStore:
    """The one Lease, with optimistic locking."""

    def __init__(self) -> None:
        self.lease: Raw | None = None
        self.version = 0
        self.is_away = False

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Raw | None:
        self._answer()
        assert (kind.kind, name) == ("Lease", LEASE_NAME)
        return dict(self.lease) if self.lease else None

    async def create(self, kind: Kind, namespace: str | None, body: Raw) -> Raw:
        self._answer()
        if self.lease:
            raise AlreadyExists(409, "AlreadyExists", "leases exists")
        return self._store(body)

    async def replace(self, kind: Kind, namespace: str | None, name: str, body: Raw) -> Raw:
        self._answer()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict(409, "Conflict", "changed")
        return self._store(body)

    def _store(self, body: Raw) -> Raw:
        self.version += 1
        self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        return self.lease

    def _answer(self) -> None:
        if self.is_away:
            raise ServerError(503, "", "away")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store() -> LeaseStore:
    return LeaseStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def claim(store: LeaseStore, clock: Clock, identity: str) -> Leadership:
    return Leadership(
        store,
        namespace="system",
        identity=identity,
        seconds=SECONDS,
        clock=clock,
        wall=lambda: datetime(2026, 1, 1, tzinfo=UTC),
    )


async def test_the_first_leads_and_the_second_stands_by(store: LeaseStore, clock: Clock) -> None:
    first, second = claim(store, clock, "a"), claim(store, clock, "b")
    for _ in range(20):
        await first._try_to_hold()
        await second._try_to_hold()
        assert (first.is_held(), second.is_held()) == (True, False)
        clock.now += first.renew_seconds
    assert store.lease is not None
    assert store.lease["spec"] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }


async def test_a_silent_leader_may_not_write_before_another_leads(store: LeaseStore, clock: Clock) -> None:
    first, second = claim(store, clock, "a"), claim(store, clock, "b")
    await first._try_to_hold()
    overlap = False
    while not second.is_held():
        await second._try_to_hold()
        overlap = overlap or (first.is_held() and second.is_held())
        clock.now += 0.5
    assert not overlap
    assert SECONDS < clock.now < SECONDS + 2


async def test_an_api_server_that_is_away_costs_the_lease_in_time(store: LeaseStore, clock: Clock) -> None:
    leader = claim(store, clock, "a")
    await leader._try_to_hold()
    store.is_away = True
    clock.now = SECONDS * 2 / 3 - 0.1
    await leader._try_to_hold()
    assert leader.is_held()
    clock.now += 0.2
    assert not leader.is_held()


async def test_a_change_by_a_third_party_does_not_cost_the_lease(store: LeaseStore, clock: Clock) -> None:
    leader = claim(store, clock, "a")
    await leader._try_to_hold()
    read = store.get

    async def annotated(kind: Kind, namespace: str | None, name: str) -> Raw | None:
        lease = await read(kind, namespace, name)
        store._store(dict(lease or {}))
        return lease

    store.get = annotated  # type: ignore[method-assign]
    await leader._try_to_hold()
    assert leader.is_held()


async def test_another_holder_ends_it_at_once(store: LeaseStore, clock: Clock) -> None:
    leader = claim(store, clock, "a")
    await leader._try_to_hold()
    assert store.lease is not None
    store._store(store.lease | {"spec": store.lease["spec"] | {"holderIdentity": "b"}})
    await leader._try_to_hold()
    assert not leader.is_held()


async def test_a_released_lease_is_taken_at_once(store: LeaseStore, clock: Clock) -> None:
    first, second = claim(store, clock, "a"), claim(store, clock, "b")
    await first._try_to_hold()
    await first.release()
    assert not first.is_held()
    await second._try_to_hold()
    assert second.is_held()
    assert store.lease is not None
    assert store.lease["spec"]["leaseTransitions"] == 2


async def test_who_does_not_hold_releases_nothing(store: LeaseStore, clock: Clock) -> None:
    first, second = claim(store, clock, "a"), claim(store, clock, "b")
    await first._try_to_hold()
    await second.release()
    assert store.lease is not None
    assert store.lease["spec"]["holderIdentity"] == "a"


@pytest.mark.looptime
async def test_hold_returns_when_the_lease_is_lost(store: LeaseStore) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    leader = Leadership(store, namespace="system", identity="a", seconds=SECONDS, clock=loop.time)
    await leader.acquire()
    store.is_away = True
    await leader.hold()
    assert loop.time() == pytest.approx(12.0)
