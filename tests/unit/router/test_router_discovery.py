"""What the router makes of what the API server says: slices and roster in any order, broken, stale, gone, away."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tokenpool_kube import Event, Kind, Object, ObjectList, Unreachable, kinds
from tokenpool_router.control.discovery import follow_pool
from tokenpool_router.control.membership import Members
from tokenpool_router.sharding import Shard

pytestmark = pytest.mark.looptime


ROUTERS = replace(kinds.ENDPOINT_SLICE, kind="EndpointSlice of routers")


def collection(kind: Kind, labels: str | None) -> Kind:
    return ROUTERS if labels == "kubernetes.io/service-name=chat" else kind


class Server:
    """Three collections that a test changes. Not an API server: it has no history, and a list can be made to fail."""

    def __init__(self) -> None:
        self.objects: dict[Kind, dict[str, Object]] = {kinds.ENDPOINT_SLICE: {}, kinds.CONFIG_MAP: {}, ROUTERS: {}}
        self.events: dict[Kind, asyncio.Queue[Event | None]] = {kind: asyncio.Queue() for kind in self.objects}
        self.asked: dict[Kind, tuple[str | None, str | None]] = {}
        self.routers: list[Mapping[str, str]] = []
        """What was said of the pool's routers."""
        self.is_away = False
        self.version = 0

    def put(self, kind: Kind, name: str, **body: Any) -> None:
        known = self.objects[kind]
        self.version += 1
        was_there = name in known
        metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(self.version)}
        known[name] = {"metadata": metadata, **body}
        self.events[kind].put_nowait(Event("MODIFIED" if was_there else "ADDED", known[name]))

    def remove(self, kind: Kind, name: str) -> None:
        self.version += 1
        gone = self.objects[kind].pop(name)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self.events[kind].put_nowait(Event("DELETED", gone))

    def cut(self) -> None:
        for queue in self.events.values():
            queue.put_nowait(None)

    async def list(
        self, kind: Kind, namespace: str | None, *, labels: str | None = None, fields: str | None = None,
        resource_version: str | None = None,
    ) -> ObjectList:  # fmt: skip
        assert namespace == "n"
        kind = collection(kind, labels)
        self.asked[kind] = labels, fields
        if self.is_away:
            raise Unreachable("away")
        self.events[kind] = asyncio.Queue()
        return ObjectList(list(self.objects[kind].values()), str(self.version))

    async def watch(
        self, kind: Kind, namespace: str | None, *, labels: str | None = None, fields: str | None = None,
        resource_version: str,
    ) -> AsyncGenerator[Event, None]:  # fmt: skip
        kind = collection(kind, labels)
        if self.is_away:
            raise Unreachable("away")
        while (event := await self.events[kind].get()) is not None:
            yield event

    def slice(self, *names: str, **conditions: bool) -> None:
        endpoints = [
            {"addresses": [f"10.0.0.{number}"], "conditions": conditions, "targetRef": {"name": name}}
            for number, name in enumerate(names)
        ]
        self.put(kinds.ENDPOINT_SLICE, "s", endpoints=endpoints, ports=[{"name": "api", "port": 8000}])

    def roster(self, generation: int, **shards: Any) -> None:
        text = json.dumps({"generation": generation, "shards": shards})
        self.put(kinds.CONFIG_MAP, "chat-roster", data={"roster.json": text})


@asynccontextmanager
async def followed(server: Server) -> AsyncIterator[tuple[Members, list[list[Shard]]]]:
    members, told = Members(0, 0), list[list[Shard]]()
    following = follow_pool(
        server, "chat", "n", members, lambda: told.append(members.shards()), on_routers=server.routers.append
    )
    task = asyncio.create_task(following)
    await asyncio.sleep(1)
    yield members, told
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def weights(members: Members) -> dict[str, tuple[float, bool]]:
    return {shard.id: (shard.weight, shard.draining) for shard in members.shards()}


async def test_slices_and_roster_come_in_any_order() -> None:
    server = Server()
    server.slice("a", "b")
    async with followed(server) as (members, told):
        assert server.asked == {
            kinds.ENDPOINT_SLICE: ("kubernetes.io/service-name=chat-shards", None),
            kinds.CONFIG_MAP: (None, "metadata.name=chat-roster"),
            ROUTERS: ("kubernetes.io/service-name=chat", None),
        }
        assert weights(members) == {"a": (1, False), "b": (1, False)}
        server.roster(3, b={"weight": 0.25, "draining": True}, c={"weight": 0.5})
        await asyncio.sleep(1)
        assert weights(members) == {"a": (1, False), "b": (0.25, True)}
        server.slice("a", "b", "c")
        await asyncio.sleep(1)
        assert (weights(members)["c"], members.generation) == ((0.5, False), 3)
        server.slice("a", "c", ready=True)
        await asyncio.sleep(1)
        assert [shard.id for shard in told[-1]] == ["a", "c"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"generation": 9, "shards": {"a": {"weight": 0}}}', '{"shards": 1}'])
async def test_a_roster_that_cannot_be_read_changes_nothing(text: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.slice("a")
    server.roster(3, a={"weight": 0.25})
    async with followed(server) as (members, _):
        server.put(kinds.CONFIG_MAP, "chat-roster", data={"roster.json": text})
        await asyncio.sleep(1)
        assert (weights(members), members.generation) == ({"a": (0.25, False)}, 3)
        assert "the roster of pool chat cannot be read, the last one stays" in caplog.text
        server.roster(4, a={"weight": 0.5})
        await asyncio.sleep(1)
        assert weights(members) == {"a": (0.5, False)}


async def test_an_older_roster_does_no_harm_and_one_that_was_made_anew_counts() -> None:
    server = Server()
    server.slice("a")
    server.roster(8, a={"draining": True})
    async with followed(server) as (members, _):
        server.roster(7, a={"draining": False})
        await asyncio.sleep(1)
        assert (weights(members), members.generation) == ({"a": (1, True)}, 8)
        server.remove(kinds.CONFIG_MAP, "chat-roster")
        await asyncio.sleep(1)
        assert (weights(members), members.generation) == ({"a": (1, True)}, 0)
        server.roster(1, a={"weight": 0.5})
        await asyncio.sleep(1)
        assert (weights(members), members.generation) == ({"a": (0.5, False)}, 1)


async def test_all_stays_while_the_api_server_is_away_and_a_relist_finds_what_changed_meanwhile() -> None:
    server = Server()
    server.slice("a", "b")
    server.roster(1, a={"weight": 0.5})
    async with followed(server) as (members, _):
        before = weights(members)
        server.is_away = True
        server.cut()
        await asyncio.sleep(300)
        assert weights(members) == before
        server.slice("b", "c")
        server.objects[kinds.CONFIG_MAP].clear()
        server.is_away = False
        # The version that was watched from is no longer known to anybody.
        await asyncio.sleep(700)
        assert weights(members) == {"b": (1, False), "c": (1, False)}


async def test_members_are_unknown_until_the_first_list_even_if_the_roster_is_there() -> None:
    server = Server()
    server.is_away = True
    async with followed(server) as (members, told):
        server.roster(1, a={})
        assert (members.are_known, told) == (False, [])
        server.is_away = False
        await asyncio.sleep(60)
        assert (members.are_known, members.shards()) == (True, [])


async def test_the_pools_routers_are_found_whatever_their_state() -> None:
    server = Server()
    endpoints = [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "targetRef": {"name": "r-1"}},
        {"addresses": ["fd00::2"], "conditions": {"ready": False, "terminating": True}, "targetRef": {"name": "r-2"}},
        {"addresses": ["10.0.0.3"]},
    ]
    server.put(ROUTERS, "chat-x", endpoints=endpoints)
    async with followed(server):
        assert server.routers[-1] == {"r-1": "10.0.0.1", "r-2": "[fd00::2]"}
        server.remove(ROUTERS, "chat-x")
        await asyncio.sleep(1)
        assert server.routers[-1] == {}
