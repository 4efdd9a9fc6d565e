"""The informer against a scripted source: every way in which lists and watches were seen to fail, on a fake clock."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tokenpool_kube import (
    ApiError,
    ClusterError,
    Event,
    Forbidden,
    Gone,
    Informer,
    Kind,
    Object,
    ObjectList,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    kinds,
)
from tokenpool_kube.backoff import Backoff
from tokenpool_kube.informer import Snapshot

pytestmark = pytest.mark.looptime


@dataclass(frozen=True)
class Silence:
    """The stream stays open and says nothing for so long."""

    seconds: float


FOREVER = Silence(10**9)
Step = Event | ClusterError | Silence


@dataclass
class FakeSource:
    """Not an API server: lists and watches by script. The last list repeats; watches past the script hang."""

    lists: deque[ObjectList | ClusterError]
    watches: deque[Sequence[Step]]
    listed_at: list[float] = field(default_factory=list)
    watched: list[tuple[float, str]] = field(default_factory=list)
    open_watches: int = 0

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
    ) -> ObjectList:
        assert resource_version is None, "a list of an old state would bring back what is gone"
        self.listed_at.append(now())
        answer = self.lists.popleft() if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str,
    ) -> AsyncGenerator[Event, None]:
        self.watched.append((now(), resource_version))
        self.open_watches += 1
        try:
            for step in self.watches.popleft() if self.watches else [FOREVER]:
                match step:
                    case Silence(seconds):
                        await asyncio.sleep(seconds)
                    case Event():
                        yield step
                    case _:
                        raise step
        finally:
            self.open_watches -= 1


def now() -> float:
    return asyncio.get_running_loop().time()


def pod(name: str, version: int, uid: str = "") -> Object:
    managed = [{"manager": "someone"}]
    metadata = {"namespace": "ns", "name": name, "uid": uid or name, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": {**metadata, "managedFields": managed}}


def listed(version: int, *pods: Object) -> ObjectList:
    return ObjectList(list(pods), str(version))


def added(name: str, version: int) -> Event:
    return Event("ADDED", pod(name, version))


def modified(name: str, version: int) -> Event:
    return Event("MODIFIED", pod(name, version))


def deleted(name: str, version: int) -> Event:
    return Event("DELETED", pod(name, version))


def bookmark(version: int) -> Event:
    return Event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def api_error(error_class: type[ApiError], status: int, retry_after: float | None = None) -> ApiError:
    return error_class(status, error_class.__name__, "told so", retry_after)


GONE = api_error(Gone, 410)
CUT = Unreachable("the stream was cut")


@dataclass
class Run:
    """What a run of the informer over a script gave."""

    informer: Informer
    source: FakeSource
    snapshots: list[Snapshot]

    @property
    def names(self) -> list[list[str]]:
        return [sorted(key.removeprefix("ns/") for key in snapshot) for snapshot in self.snapshots]


@asynccontextmanager
async def running(
    lists: Sequence[ObjectList | ClusterError], watches: Sequence[Sequence[Step]] = (), *, relist_seconds: float = 10**6
) -> AsyncIterator[Run]:
    source = FakeSource(deque(lists), deque(watches))
    snapshots: list[Snapshot] = []

    async def on_change(snapshot: Snapshot) -> None:
        snapshots.append(snapshot)

    # No jitter: with a chance of 1 the delays are 0.5, 1, 2, 4, 8, 16, 16 ...
    backoff = Backoff(chance=lambda: 1.0)
    informer = Informer(source, kinds.POD, "ns", on_change, relist_seconds=relist_seconds, backoff=backoff)
    task = asyncio.create_task(informer.run())
    try:
        yield Run(informer, source, snapshots)
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert source.open_watches == 0, "a watch outlived its informer"


@dataclass(frozen=True)
class Case:
    """A script, and the one right course of events."""

    lists: Sequence[ObjectList | ClusterError]
    watches: Sequence[Sequence[Step]]
    names: list[list[str]]
    lists_done: int
    watched_from: list[str]


CASES = {
    "an empty list is told too": Case([listed(5)], [], [[]], 1, ["5"]),
    "events change the snapshot one by one": Case(
        [listed(5, pod("a", 3))],
        [[added("b", 6), modified("a", 7), deleted("b", 8), FOREVER]],
        [["a"], ["a", "b"], ["a", "b"], ["a"]],
        1,
        ["5"],
    ),
    "a stream that ends in order resumes after its last bookmark": Case(
        [listed(5, pod("a", 3))], [[added("b", 6), bookmark(40)], [FOREVER]], [["a"], ["a", "b"]], 1, ["5", "40"]
    ),
    "a cut stream resumes after its last event": Case(
        [listed(5)], [[added("a", 6), CUT], [added("b", 9), FOREVER]], [[], ["a"], ["a", "b"]], 1, ["5", "6"]
    ),
    "410 as a status relists, and what vanished meanwhile is gone": Case(
        [listed(5, pod("a", 3), pod("b", 4)), listed(90, pod("b", 4))], [[GONE]], [["a", "b"], ["b"]], 2, ["5", "90"]
    ),
    "410 inside the stream relists, and what vanished meanwhile is gone": Case(
        [listed(5, pod("a", 3)), listed(90)], [[added("b", 6), GONE]], [["a"], ["a", "b"], []], 2, ["5", "90"]
    ),
    "a relist that finds a namesake replaces it": Case(
        [listed(5, pod("a", 3)), listed(90, pod("a", 3, uid="another"))], [[GONE]], [["a"], ["a"]], 2, ["5", "90"]
    ),
    "a relist that finds nothing new is silent": Case(
        [listed(5, pod("a", 3)), listed(90, pod("a", 3))], [[GONE]], [["a"]], 2, ["5", "90"]
    ),
    "an ERROR event of code 500 relists, for it may be about the version": Case(
        [listed(5), listed(6)], [[api_error(ServerError, 500)]], [[]], 2, ["5", "6"]
    ),
    "401 on the watch resumes": Case([listed(5)], [[api_error(Unauthorized, 401)]], [[]], 1, ["5", "5"]),
    "403 on the watch resumes": Case([listed(5)], [[api_error(Forbidden, 403)]], [[]], 1, ["5", "5"]),
    "429 on the watch resumes": Case([listed(5)], [[api_error(TooManyRequests, 429)]], [[]], 1, ["5", "5"]),
    "failing lists are tried until one succeeds": Case(
        [CUT, api_error(Unauthorized, 401), api_error(Forbidden, 403), api_error(ServerError, 503), listed(5)],
        [],
        [[]],
        5,
        ["5"],
    ),
    "410 in the middle of the pages of a list": Case([GONE, listed(5)], [], [[]], 2, ["5"]),
    "the same event twice changes nothing the second time": Case(
        [listed(5)], [[added("a", 6), added("a", 6), FOREVER]], [[], ["a"]], 1, ["5"]
    ),
    "an older event after a newer one relists instead of raising the dead": Case(
        [listed(5, pod("a", 3)), listed(9)],
        [[modified("a", 6), deleted("a", 8), modified("a", 7), FOREVER]],
        [["a"], ["a"], []],
        2,
        ["5", "9"],
    ),
    "the deletion of something unknown is no change": Case([listed(5)], [[deleted("z", 6), FOREVER]], [[]], 1, ["5"]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_course_of_events(case: Case) -> None:
    async with running(case.lists, case.watches) as run:
        await asyncio.sleep(60)
    assert run.names == case.names
    assert len(run.source.listed_at) == case.lists_done
    assert [version for _, version in run.source.watched] == case.watched_from


async def test_failures_are_spaced_out_and_told() -> None:
    async with running([Unreachable("refused")]) as run:
        await asyncio.sleep(60)
        gaps = [later - earlier for earlier, later in zip(run.source.listed_at, run.source.listed_at[1:], strict=False)]
        assert gaps == pytest.approx([0.5, 1, 2, 4, 8, 16, 16])
        assert str(run.informer.last_error) == "refused"
        assert not run.informer.is_synced


async def test_one_event_makes_the_next_failure_a_first_one() -> None:
    watches: list[list[Step]] = [[CUT], [CUT], [added("a", 6), CUT], [FOREVER]]
    async with running([listed(5)], watches) as run:
        await asyncio.sleep(60)
    assert [at for at, _ in run.source.watched] == pytest.approx([0, 0.5, 1.5, 2.0])


async def test_watches_that_end_at_once_do_not_spin() -> None:
    async with running([listed(5)], [[]] * 100) as run:
        await asyncio.sleep(60)
    assert len(run.source.watched) == 8


@pytest.mark.parametrize("error", [api_error(TooManyRequests, 429, 7), api_error(ServerError, 503, 7)], ids=str)
async def test_retry_after_is_obeyed(error: ApiError) -> None:
    async with running([error, listed(5)]) as run:
        await asyncio.sleep(60)
    assert run.source.listed_at == pytest.approx([0, 7.5])


async def test_age_grows_while_the_server_is_silent_and_a_bookmark_ends_it() -> None:
    async with running([listed(5)], [[Silence(70), CUT], [Silence(1), bookmark(6), FOREVER]]) as run:
        await asyncio.sleep(69)
        assert run.informer.last_event_age(now()) == pytest.approx(69)
        await asyncio.sleep(2)
        assert run.informer.last_error is CUT
        await asyncio.sleep(1)
        assert run.informer.last_event_age(now()) == pytest.approx(0.5)
        assert run.informer.last_error is None


async def test_age_counts_from_the_start_while_nothing_ever_came() -> None:
    async with running([Unreachable("refused")]) as run:
        assert run.informer.last_event_age(now()) == 0
        await asyncio.sleep(200)
        assert run.informer.last_event_age(now()) == pytest.approx(200)


async def test_a_lossy_stream_is_healed_by_the_periodic_list() -> None:
    # The deletion of a never arrives, though bookmarks do.
    minutes: list[Step] = [step for version in range(6, 10) for step in (Silence(60), bookmark(version))]
    async with running([listed(5, pod("a", 3)), listed(9)], [minutes, [FOREVER]], relist_seconds=240) as run:
        await asyncio.sleep(239)
        assert run.names == [["a"]]
        await asyncio.sleep(2)
        assert run.names == [["a"], []]


async def test_wait_synced_returns_after_the_first_snapshot_was_taken() -> None:
    async with running([CUT, listed(5, pod("a", 3))]) as run:
        await run.informer.wait_synced()
        assert run.names == [["a"]]
        assert run.informer.snapshot is run.snapshots[-1]
        assert now() == pytest.approx(0.5)


async def test_snapshots_are_frozen_and_light() -> None:
    async with running([listed(5, pod("a", 3))], [[added("b", 6), FOREVER]]) as run:
        await asyncio.sleep(1)
    first, second = run.snapshots
    assert (list(first), list(second)) == (["ns/a"], ["ns/a", "ns/b"])
    assert all("managedFields" not in item["metadata"] for item in second.values())
    with pytest.raises(TypeError):
        second["ns/c"] = {}  # type: ignore[index]


async def test_objects_without_namespace_are_known_by_name() -> None:
    node: Object = {"metadata": {"name": "node-1", "uid": "1", "resourceVersion": "2"}}
    async with running([listed(5, node)]) as run:
        await run.informer.wait_synced()
        assert list(run.informer.snapshot) == ["node-1"]


@pytest.mark.parametrize("bug", [ValueError("a bug"), Unreachable("called the API server")], ids=["bug", "misuse"])
async def test_what_on_change_raises_ends_the_informer(bug: Exception) -> None:
    async def on_change(_snapshot: Snapshot) -> None:
        raise bug

    informer = Informer(FakeSource(deque([listed(5)]), deque()), kinds.POD, "ns", on_change)
    with pytest.raises((ValueError, RuntimeError)) as caught:
        await asyncio.wait_for(informer.run(), 60)
    assert bug in (caught.value, caught.value.__cause__)
    assert not informer.is_synced


async def test_cancelling_ends_it_in_the_middle_of_a_pause() -> None:
    informer = Informer(FakeSource(deque([CUT]), deque()), kinds.POD, "ns", on_change=_ignore)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _ignore(_snapshot: Snapshot) -> None: ...
