"""One real control plane for the session, a namespace for each test that wants one, a Redis for those of routers."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from cluster.controlplane import ControlPlane
from programs import program
from support.fault_proxy import FaultProxy
from support.kubelet import Kubelet
from support.raw_pools import Session
from support.redis_server import RedisServer
from support.settle import assert_becomes
from tokenpool_kube import Cluster, NotFound, kinds

CRD_FILE = Path(__file__).parents[2] / "crds" / "tokenpool.yaml"
NUMBERS = itertools.count(1)

# pytest-asyncio asks for "the current loop" before the first test; Python 3.11 would make one that nobody closes.
asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """A client with all rights, past every fault."""
    async with await Cluster.connect(kubeconfig=str(control_plane.kubeconfig)) as cluster:
        yield cluster


@pytest.fixture
async def namespace(api: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A fresh namespace that enforces the strictest pod security, ready to take pods."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].rstrip("-")
    name = f"{slug}-{next(NUMBERS)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made = await api.create(kinds.NAMESPACE, None, {"metadata": {"name": name, "labels": labels}})

    async def takes_pods() -> bool:
        return await api.get(kinds.SERVICE_ACCOUNT, name, "default") is not None

    await assert_becomes(takes_pods)
    yield name
    # Nobody plays the kubelet any more, so bound pods would never end by themselves.
    for pod in (await api.list(kinds.POD, name)).items:
        await api.delete(kinds.POD, name, pod["metadata"]["name"], uid=pod["metadata"]["uid"], grace_seconds=0)
    await api.delete(kinds.NAMESPACE, None, name, uid=made["metadata"]["uid"])


@pytest.fixture
async def crd(api: Cluster) -> str:
    """The TokenPool CRD is served. Returns its name."""
    body = yaml.safe_load(CRD_FILE.read_text())
    name: str = body["metadata"]["name"]
    await api.apply(kinds.CUSTOM_RESOURCE_DEFINITION, None, name, body, manager="test")

    async def is_served() -> bool:
        try:
            await api.list(kinds.TOKENPOOL, None)
        except NotFound:
            return False
        return True

    await assert_becomes(is_served)
    return name


@pytest.fixture
async def kubelet(api: Cluster, namespace: str) -> AsyncIterator[Kubelet]:
    """Plays the node for this test's namespace."""
    async with Kubelet(api, node=f"node-{next(NUMBERS)}", namespace=namespace) as running:
        yield running


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    """Stands in front of the API server. Its kubeconfig is what the tested program gets."""
    async with FaultProxy(control_plane.url, Path(control_plane.ca_file)) as running:
        yield running


@pytest.fixture
def proxied_kubeconfig(proxy: FaultProxy, control_plane: ControlPlane, tmp_path: Path) -> Path:
    return proxy.write_kubeconfig(tmp_path / "proxied-kubeconfig", control_plane.token)


@pytest.fixture
async def proxied(proxied_kubeconfig: Path) -> AsyncIterator[Cluster]:
    """A client with all rights, through the proxy."""
    async with await Cluster.connect(kubeconfig=str(proxied_kubeconfig)) as cluster:
        yield cluster


@pytest.fixture
def session(control_plane: ControlPlane, namespace: str, crd: str) -> Session:
    """Pools of the test's namespace, sent as they are."""
    return Session(control_plane, namespace)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A running redis-server of this test's own. What is in it survives a kill."""
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(program("redis-server"), folder, appendonly=True)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def url_file(redis_server: RedisServer, tmp_path: Path) -> Path:
    """The file that tells routers where it is."""
    path = tmp_path / "url"
    path.write_text(redis_server.url + "\n")
    return path
