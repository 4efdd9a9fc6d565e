"""The client against a tiny fake API server on loopback: what it sends, and what it makes of bad answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from aiohttp import web

from tokenpool_kube import Cluster, Event, NotConfigured, Object, ServerError, Unauthorized, Unreachable, kinds
from tokenpool_kube.credentials import Credentials, find_credentials

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeApiServer:
    """Answers every request with `handler` and keeps the requests."""

    def __init__(self) -> None:
        self.handler: Handler = self._no_handler
        self.requests: list[tuple[str, str, str]] = []
        self.bodies: list[str] = []
        self.tokens: list[str] = []
        self.url = ""

    async def _no_handler(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, request.headers.get("Content-Type", "")))
        self.bodies.append(await request.text())
        self.tokens.append(request.headers.get("Authorization", ""))
        return await self.handler(request)

    def answers(self, *bodies: object, status: int = 200) -> None:
        """One after the other; the last repeats."""
        left = list(bodies)

        async def handler(_request: web.Request) -> web.StreamResponse:
            return web.json_response(left.pop(0) if len(left) > 1 else left[0], status=status)

        self.handler = handler


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    fake = FakeApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    yield fake
    await runner.cleanup()


def kubeconfig(folder: Path, url: str, token: str = "first") -> Path:
    path = folder / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
async def cluster(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with await Cluster.connect(kubeconfig=str(kubeconfig(tmp_path, server.url))) as connected:
        yield connected


def page(*names: str, following: str = "") -> Object:
    items = [{"metadata": {"name": name}} for name in names]
    return {"kind": "PodList", "metadata": {"resourceVersion": "7", "continue": following}, "items": items}


async def test_lists_pages_and_completes_the_items(server: FakeApiServer, cluster: Cluster) -> None:
    server.answers(page("a", "b", following="t"), page("c"))
    listed = await cluster.list(kinds.POD, "ns", labels="app=x")
    assert [(item["apiVersion"], item["kind"], item["metadata"]["name"]) for item in listed.items] == [
        ("v1", "Pod", "a"),
        ("v1", "Pod", "b"),
        ("v1", "Pod", "c"),
    ]
    assert listed.resource_version == "7"
    assert len(server.requests) == 2


async def test_an_expired_page_token_falls_back_to_one_whole_list(server: FakeApiServer, cluster: Cluster) -> None:
    queries = []

    async def handler(request: web.Request) -> web.StreamResponse:
        queries.append(dict(request.query))
        if "continue" in request.query:
            return web.json_response({"kind": "Status", "reason": "Expired"}, status=410)
        return web.json_response(page("a", "b") if "limit" not in request.query else page("a", following="t"))

    server.handler = handler
    listed = await cluster.list(kinds.POD, "ns", resource_version="0")
    assert [item["metadata"]["name"] for item in listed.items] == ["a", "b"]
    assert queries == [
        {"limit": "500", "resourceVersion": "0"},
        {"limit": "500", "continue": "t"},
        {"resourceVersion": "0"},
    ]


@pytest.mark.parametrize("answer", [{}, {"kind": "Status"}])
async def test_a_list_that_is_none_is_no_empty_list(server: FakeApiServer, cluster: Cluster, answer: object) -> None:
    # Taken for an empty list it would look as if everything had been deleted.
    server.answers(answer)
    with pytest.raises(Unreachable):
        await cluster.list(kinds.POD, "ns")


async def test_get_tells_absence_from_trouble(server: FakeApiServer, cluster: Cluster) -> None:
    server.answers({"kind": "Status", "reason": "NotFound"}, status=404)
    assert await cluster.get(kinds.POD, "ns", "a") is None
    server.answers({"kind": "Status", "reason": "InternalError"}, status=500)
    with pytest.raises(ServerError):
        await cluster.get(kinds.POD, "ns", "a")


async def test_delete_carries_the_uid_and_takes_gone_for_done(server: FakeApiServer, cluster: Cluster) -> None:
    server.answers({"kind": "Status", "reason": "NotFound"}, status=404)
    await cluster.delete(kinds.POD, "ns", "a", uid="u-1", grace_seconds=0)
    assert server.requests == [("DELETE", "/api/v1/namespaces/ns/pods/a", "application/json")]
    assert json.loads(server.bodies[0]) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u-1"},
        "gracePeriodSeconds": 0,
    }


async def test_apply_is_server_side(server: FakeApiServer, cluster: Cluster) -> None:
    queries = []

    async def handler(request: web.Request) -> web.StreamResponse:
        queries.append(dict(request.query))
        return web.json_response({})

    server.handler = handler
    await cluster.apply(kinds.SERVICE, "ns", "s", {"spec": {}}, manager="me")
    assert server.requests == [("PATCH", "/api/v1/namespaces/ns/services/s", "application/apply-patch+yaml")]
    assert queries == [{"fieldManager": "me", "force": "true"}]
    assert json.loads(server.bodies[0]) == {"apiVersion": "v1", "kind": "Service", "spec": {}}


async def test_no_answer_is_unreachable(cluster: Cluster, server: FakeApiServer) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.handler = handler
    with pytest.raises(Unreachable, match="POST /api/v1/namespaces/ns/pods"):
        await cluster.create(kinds.POD, "ns", {})


def streams(*chunks: bytes, cut: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        for chunk in chunks:
            await reply.write(chunk)
            await asyncio.sleep(0)
        if cut and request.transport is not None:
            request.transport.abort()
        return reply

    return handler


async def read(cluster: Cluster) -> list[Event]:
    async with aclosing(cluster.watch(kinds.POD, "ns", resource_version="5")) as events:
        return [event async for event in events]


async def test_watch_splits_lines_wherever_the_network_did(server: FakeApiServer, cluster: Cluster) -> None:
    big = "x" * 5_000_000
    first = json.dumps({"type": "ADDED", "object": {"big": big}}).encode()
    second = json.dumps({"type": "BOOKMARK", "object": {}}).encode()
    server.handler = streams(first[:10], first[10:] + b"\n" + second[:3], second[3:] + b"\n\n")
    assert await read(cluster) == [Event("ADDED", {"big": big}), Event("BOOKMARK", {})]


@pytest.mark.parametrize(
    "handler",
    [streams(b'{"type": "ADD', cut=True), streams(b'{"type": "ADD'), streams(b"<html>\n")],
    ids=["reset", "ended inside a line", "not JSON"],
)
async def test_a_broken_stream_is_unreachable(server: FakeApiServer, cluster: Cluster, handler: Handler) -> None:
    server.handler = handler
    with pytest.raises(Unreachable, match="watch"):
        await read(cluster)


async def test_an_error_inside_the_stream_is_raised(server: FakeApiServer, cluster: Cluster) -> None:
    told = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd is unwell"}
    server.handler = streams(json.dumps({"type": "ERROR", "object": told}).encode() + b"\n")
    with pytest.raises(ServerError, match="etcd is unwell"):
        await read(cluster)


async def token_of(credentials: Credentials) -> str:
    settings = await credentials.configuration.auth_settings()
    return str(settings["BearerToken"]["value"])


async def test_a_refused_kubeconfig_token_is_read_again(
    server: FakeApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    server.answers({"kind": "Status", "reason": "Unauthorized"}, status=401)
    for token in ("second", "third"):
        kubeconfig(tmp_path, server.url, token)
        with pytest.raises(Unauthorized):
            await cluster.get(kinds.POD, "ns", "a")
    assert server.tokens == ["Bearer first", "Bearer third"]


async def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "ca.crt").write_text("certificates")
    (tmp_path / "token").write_text("first")
    credentials = find_credentials(None, tmp_path)
    await credentials.load()
    assert credentials.configuration.host == "https://10.96.0.1:443"
    assert await token_of(credentials) == "bearer first"
    (tmp_path / "token").write_text("second")
    assert await token_of(credentials) == "bearer first"
    credentials.distrust()
    assert await token_of(credentials) == "bearer second"


@pytest.mark.looptime
async def test_a_rotated_token_is_read_within_a_minute() -> None:
    tokens = iter(["first", "second"])

    async def reload(configuration: object) -> None:
        configuration.api_key["BearerToken"] = next(tokens)  # type: ignore[attr-defined]

    credentials = Credentials(reload, reload_seconds=60)
    await credentials.load()
    seen = []
    for _ in range(3):
        seen.append(await token_of(credentials))
        await asyncio.sleep(31)
    assert seen == ["first", "first", "second"]


@pytest.mark.looptime
async def test_credentials_that_cannot_be_read_again_stay_as_they_were() -> None:
    async def reload(configuration: object) -> None:
        if configuration.api_key:  # type: ignore[attr-defined]
            raise OSError("the file is being replaced")
        configuration.api_key["BearerToken"] = "first"  # type: ignore[attr-defined]

    credentials = Credentials(reload, reload_seconds=60)
    await credentials.load()
    await asyncio.sleep(100)
    assert await token_of(credentials) == "first"


async def test_no_credentials_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured):
        await Cluster.connect(kubeconfig=str(tmp_path / "none"))
