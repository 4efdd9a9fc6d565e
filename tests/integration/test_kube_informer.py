"""The door to the API server against a real one, with a proxy in between that misbehaves on request."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from cluster.controlplane import ControlPlane
from support.fault_proxy import FaultProxy
from support.faults import Answer, Delay, Freeze, LoseReply, Refuse, StreamError
from support.settle import assert_becomes
from tokenpool_kube import (
    AlreadyExists,
    Cluster,
    Conflict,
    Event,
    Forbidden,
    Gone,
    Informer,
    Invalid,
    NotFound,
    Object,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    kinds,
)
from tokenpool_kube.informer import Snapshot


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "labels": {"app": "test"}}, "data": data}


async def ignore(_snapshot: Snapshot) -> None: ...


@asynccontextmanager
async def informing(
    cluster: Cluster, namespace: str, on_change: Callable[[Snapshot], Awaitable[None]] = ignore
) -> AsyncIterator[Informer]:
    """Only our own ConfigMaps: every namespace also gets one from the controller manager."""
    informer = Informer(cluster, kinds.CONFIG_MAP, namespace, on_change, labels="app=test")
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 30)
        yield informer
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def assert_holds(informer: Informer, *names: str, within_seconds: float = 20.0) -> None:
    async def holds() -> bool:
        assert sorted(item["metadata"]["name"] for item in informer.snapshot.values()) == sorted(names)
        return True

    await assert_becomes(holds, within_seconds=within_seconds)


async def remove(api: Cluster, namespace: str, name: str) -> None:
    seen = await api.get(kinds.CONFIG_MAP, namespace, name)
    assert seen is not None
    await api.delete(kinds.CONFIG_MAP, namespace, name, uid=seen["metadata"]["uid"])


async def opens_watch(proxy: FaultProxy) -> None:
    async def is_open() -> bool:
        return bool(proxy.open_watches("configmaps"))

    await assert_becomes(is_open)


# What the client promises


async def test_apply_twice_writes_once(api: Cluster, namespace: str) -> None:
    first = await api.apply(kinds.CONFIG_MAP, namespace, "a", config_map("a", k="v"), manager="test")
    again = await api.apply(kinds.CONFIG_MAP, namespace, "a", config_map("a", k="v"), manager="test")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_apply_drops_what_we_no_longer_send_and_keeps_the_others_fields(api: Cluster, namespace: str) -> None:
    await api.apply(kinds.CONFIG_MAP, namespace, "a", config_map("a", ours="1", old="1"), manager="test")
    await api.apply(kinds.CONFIG_MAP, namespace, "a", {"data": {"theirs": "1"}}, manager="other")
    result = await api.apply(kinds.CONFIG_MAP, namespace, "a", config_map("a", ours="2"), manager="test")
    assert result["data"] == {"ours": "2", "theirs": "1"}


async def test_unforced_apply_raises_on_a_field_of_another_manager(api: Cluster, namespace: str) -> None:
    await api.apply(kinds.CONFIG_MAP, namespace, "a", config_map("a", k="1"), manager="other")
    with pytest.raises(Conflict):
        await api.apply(kinds.CONFIG_MAP, namespace, "a", config_map("a", k="2"), manager="test", force=False)


async def test_create_raises_when_the_name_is_taken(api: Cluster, namespace: str) -> None:
    await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    with pytest.raises(AlreadyExists):
        await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))


async def test_create_raises_on_what_the_server_will_never_take(api: Cluster, namespace: str) -> None:
    with pytest.raises(Invalid, match="lowercase RFC 1123"):
        await api.create(kinds.CONFIG_MAP, namespace, config_map("Not_A_Name"))
    with pytest.raises(NotFound, match="no-such-namespace"):
        await api.create(kinds.CONFIG_MAP, "no-such-namespace", config_map("a"))


async def test_delete_spares_a_namesake(api: Cluster, namespace: str) -> None:
    old = await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    await api.delete(kinds.CONFIG_MAP, namespace, "a", uid=old["metadata"]["uid"])
    await api.delete(kinds.CONFIG_MAP, namespace, "a", uid=old["metadata"]["uid"])
    new = await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    with pytest.raises(Conflict):
        await api.delete(kinds.CONFIG_MAP, namespace, "a", uid=old["metadata"]["uid"])
    kept = await api.get(kinds.CONFIG_MAP, namespace, "a")
    assert kept is not None
    assert kept["metadata"]["uid"] == new["metadata"]["uid"]


async def test_replace_raises_on_an_old_version(api: Cluster, namespace: str) -> None:
    old = await api.create(kinds.CONFIG_MAP, namespace, config_map("a", k="1"))
    await api.replace(kinds.CONFIG_MAP, namespace, "a", {**old, "data": {"k": "2"}})
    with pytest.raises(Conflict) as caught:
        await api.replace(kinds.CONFIG_MAP, namespace, "a", {**old, "data": {"k": "3"}})
    assert not isinstance(caught.value, AlreadyExists)


async def test_replace_status_leaves_the_rest_alone_and_a_repeat_writes_nothing(api: Cluster, namespace: str) -> None:
    # No controller here looks after load balancers, so nobody interferes.
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    made = await api.create(kinds.SERVICE, namespace, {"metadata": {"name": "s"}, "spec": spec})
    made["status"] = {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}
    made["spec"]["sessionAffinity"] = "ClientIP"
    first = await api.replace_status(kinds.SERVICE, namespace, "s", made)
    assert first["status"]["loadBalancer"]["ingress"][0]["ip"] == "10.0.0.9"
    assert first["spec"]["sessionAffinity"] == "None"
    again = await api.replace_status(kinds.SERVICE, namespace, "s", first)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        await api.replace_status(kinds.SERVICE, namespace, "s", made)


async def test_list_walks_all_pages(api: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenpool_kube.client.PAGE_OBJECTS", 3)
    names = [f"m-{number}" for number in range(10)]
    await asyncio.gather(*(api.create(kinds.CONFIG_MAP, namespace, config_map(name)) for name in names))
    listed = await api.list(kinds.CONFIG_MAP, namespace, labels="app=test")
    assert [item["metadata"]["name"] for item in listed.items] == names
    assert {item["kind"] for item in listed.items} == {"ConfigMap"}


async def test_a_service_account_token_opens_the_door(
    api: Cluster, control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"spec": {"expirationSeconds": 600}}
    answer = await api.create_sub(kinds.SERVICE_ACCOUNT, namespace, "default", "token", request)
    host, port = control_plane.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    (tmp_path / "ca.crt").symlink_to(control_plane.ca_file)
    (tmp_path / "token").write_text("not a token")
    async with await Cluster.connect(service_account=tmp_path) as cluster:
        with pytest.raises(Unauthorized):
            await cluster.get(kinds.POD, namespace, "a")
        (tmp_path / "token").write_text(answer["status"]["token"])
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:default.*cannot get.*pods"):
            await cluster.get(kinds.POD, namespace, "a")


# What faults on the way look like


@pytest.mark.parametrize(
    ("fault", "error_class"),
    [
        (Answer(401), Unauthorized),
        (Answer(403), Forbidden),
        (Answer(429, retry_after=2), TooManyRequests),
        (Answer(429, retry_after=2, plain=True), TooManyRequests),
        (Answer(500), ServerError),
        (Answer(503, plain=True), ServerError),
        (Refuse(), Unreachable),
    ],
    ids=str,
)
async def test_faults_have_their_classes(
    proxied: Cluster, proxy: FaultProxy, namespace: str, fault: Answer | Refuse, error_class: type[Exception]
) -> None:
    rule = proxy.inject(fault, verb="create", resource="configmaps", times=None)
    with pytest.raises(error_class) as caught:
        await proxied.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    assert rule.hits
    if isinstance(fault, Answer) and fault.retry_after:
        assert isinstance(caught.value, TooManyRequests)
        assert caught.value.retry_after == 2


async def test_a_lost_reply_is_unreachable_and_the_write_has_happened(
    proxied: Cluster, proxy: FaultProxy, namespace: str
) -> None:
    proxy.inject(LoseReply(), verb="create", resource="configmaps")
    with pytest.raises(Unreachable):
        await proxied.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    with pytest.raises(AlreadyExists):
        await proxied.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    assert [(write.call.verb, write.status) for write in proxy.writes] == [("create", 201), ("create", 409)]


async def test_a_slow_server_is_waited_for(proxied: Cluster, proxy: FaultProxy, namespace: str) -> None:
    proxy.inject(Delay(0.5), verb="create")
    before = time.monotonic()
    await proxied.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    assert time.monotonic() - before >= 0.5


async def test_the_nth_write_calls_the_hook_before_it_is_answered(
    proxied: Cluster, proxy: FaultProxy, namespace: str
) -> None:
    done: list[int] = []
    proxy.after_write(2, lambda: done.append(len(proxy.writes)))
    await proxied.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    assert done == []
    await proxied.create(kinds.CONFIG_MAP, namespace, config_map("b"))
    assert done == [2]


# What the informer promises


async def test_it_follows_creations_changes_and_deletions(api: Cluster, namespace: str) -> None:
    seen: list[list[str]] = []

    async def on_change(snapshot: Snapshot) -> None:
        seen.append([f"{name}={item['data']['k']}" for name, item in snapshot.items()])

    await api.create(kinds.CONFIG_MAP, namespace, config_map("a", k="1"))
    async with informing(api, namespace, on_change) as informer:
        await api.create(kinds.CONFIG_MAP, namespace, config_map("b", k="1"))
        await api.apply(kinds.CONFIG_MAP, namespace, "b", {"data": {"k": "2"}}, manager="test")
        await remove(api, namespace, "a")
        await assert_holds(informer, "b")
    a, b = f"{namespace}/a", f"{namespace}/b"
    assert seen == [[f"{a}=1"], [f"{a}=1", f"{b}=1"], [f"{a}=1", f"{b}=2"], [f"{b}=2"]]


async def test_an_object_that_leaves_the_selector_leaves_the_snapshot(api: Cluster, namespace: str) -> None:
    made = await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    async with informing(api, namespace) as informer:
        made["metadata"]["labels"] = {"app": "other"}
        await api.replace(kinds.CONFIG_MAP, namespace, "a", made)
        await assert_holds(informer)


@pytest.mark.parametrize("form", ["in the stream", "as a status"])
async def test_what_was_deleted_before_a_410_is_gone_after_it(
    api: Cluster, proxied: Cluster, proxy: FaultProxy, namespace: str, form: str
) -> None:
    for name in ("a", "b"):
        await api.create(kinds.CONFIG_MAP, namespace, config_map(name))
    async with informing(proxied, namespace) as informer:
        await opens_watch(proxy)
        proxy.freeze_watches("configmaps")
        await remove(api, namespace, "a")
        # The relist must not be able to come before the deletion, nor the news of it by any other way.
        rule = proxy.inject(StreamError(410) if form == "in the stream" else Answer(410), verb="watch")
        proxy.cut_watches("configmaps")
        await assert_holds(informer, "b")
        assert rule.hits
        await api.create(kinds.CONFIG_MAP, namespace, config_map("c"))
        await assert_holds(informer, "b", "c")


async def test_an_expired_open_stream_relists(
    api: Cluster, proxied: Cluster, proxy: FaultProxy, namespace: str
) -> None:
    async with informing(proxied, namespace) as informer:
        await opens_watch(proxy)
        lists = sum(call.verb == "list" for call in proxy.calls)
        await proxy.expire_watches("configmaps")
        await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
        await assert_holds(informer, "a")
        assert sum(call.verb == "list" for call in proxy.calls) == lists + 1


async def test_a_cut_stream_resumes_without_a_list(
    api: Cluster, proxied: Cluster, proxy: FaultProxy, namespace: str
) -> None:
    async with informing(proxied, namespace) as informer:
        await opens_watch(proxy)
        lists = sum(call.verb == "list" for call in proxy.calls)
        proxy.cut_watches("configmaps")
        await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
        await assert_holds(informer, "a")
        assert sum(call.verb == "list" for call in proxy.calls) == lists


async def test_a_half_open_stream_is_given_up_for_a_new_one(
    api: Cluster, proxied: Cluster, proxy: FaultProxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The product waits 75 s, which is past the server's bookmarks; the mechanism is the same at 1 s.
    impatient = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=1)
    monkeypatch.setattr("tokenpool_kube.client.WATCH_TIMEOUT", impatient)
    frozen = proxy.inject(Freeze(), verb="watch", resource="configmaps")
    async with informing(proxied, namespace) as informer:
        await opens_watch(proxy)
        await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
        await asyncio.sleep(0.5)
        assert informer.last_event_age(asyncio.get_running_loop().time()) >= 0.4
        await assert_holds(informer, "a")
        assert frozen.hits


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_no_answer_ends_it(
    api: Cluster, proxied: Cluster, proxy: FaultProxy, namespace: str, status: int
) -> None:
    async with informing(proxied, namespace) as informer:
        await opens_watch(proxy)
        rule = proxy.inject(Answer(status), times=None)
        proxy.cut_watches()

        async def has_met_it_twice() -> bool:
            return len(rule.hits) >= 2

        await assert_becomes(has_met_it_twice)
        assert informer.last_error is not None
        await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
        proxy.heal()
        await assert_holds(informer, "a")
        assert informer.last_error is None


async def test_retry_after_is_obeyed(api: Cluster, proxied: Cluster, proxy: FaultProxy, namespace: str) -> None:
    async with informing(proxied, namespace) as informer:
        await opens_watch(proxy)
        rule = proxy.inject(Answer(429, retry_after=2), verb="watch")
        before = time.monotonic()
        proxy.cut_watches()
        await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
        await assert_holds(informer, "a")
        assert len(rule.hits) == 1
        assert time.monotonic() - before >= 2


async def test_lost_events_come_back_with_the_next_list(
    api: Cluster, proxied: Cluster, proxy: FaultProxy, namespace: str
) -> None:
    await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    async with informing(proxied, namespace) as informer:
        await opens_watch(proxy)
        proxy.drops_event = lambda _call, event: bool(event["type"] == "DELETED")
        await remove(api, namespace, "a")
        await api.create(kinds.CONFIG_MAP, namespace, config_map("b"))
        await assert_holds(informer, "a", "b")
        await proxy.expire_watches("configmaps")
        await assert_holds(informer, "b")


async def test_bookmarks_move_the_version(api: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A server sends one a little before it ends the stream, so a short stream saves waiting for the minute.
    monkeypatch.setattr("tokenpool_kube.client.WATCH_SECONDS", 4)
    listed = await api.list(kinds.CONFIG_MAP, namespace)
    await api.create(kinds.CONFIG_MAP, namespace, config_map("a"))
    types = []
    stream = api.watch(kinds.CONFIG_MAP, namespace, labels="app=none", resource_version=listed.resource_version)
    async with aclosing(stream) as events:
        async for event in events:
            types.append(event.type)
            assert int(event.object["metadata"]["resourceVersion"]) > int(listed.resource_version)
    assert set(types) == {"BOOKMARK"}


async def test_stopping_closes_the_stream_on_the_server_too(
    proxied: Cluster, proxy: FaultProxy, namespace: str
) -> None:
    async with informing(proxied, namespace):
        await opens_watch(proxy)

    async def is_closed() -> bool:
        return not proxy.open_watches()

    await assert_becomes(is_closed, within_seconds=5)


async def test_an_api_server_that_restarts_is_found_again(
    api: Cluster, control_plane: ControlPlane, namespace: str
) -> None:
    before = await api.list(kinds.CONFIG_MAP, namespace)
    for name in ("a", "b"):
        await api.create(kinds.CONFIG_MAP, namespace, config_map(name))
    async with informing(api, namespace) as informer:
        await asyncio.to_thread(control_plane.restart_apiserver)
        await remove(api, namespace, "a")
        await api.create(kinds.CONFIG_MAP, namespace, config_map("c"))
        await assert_holds(informer, "b", "c", within_seconds=40)
    # Its memory begins with the restart: here is the 410 that all the injected ones stand for.
    with pytest.raises(Gone):
        await first_event(api, namespace, before.resource_version)


async def first_event(api: Cluster, namespace: str, resource_version: str) -> Event:
    async with (
        asyncio.timeout(20),
        aclosing(api.watch(kinds.CONFIG_MAP, namespace, resource_version=resource_version)) as events,
    ):
        return await anext(events)
