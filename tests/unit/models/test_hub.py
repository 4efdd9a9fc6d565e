"""The stand-in of the hub against the real client: what it downloads, resumes and refuses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from models.hub import Hub, Repository, find_repositories, parse, repositories_of

TOKEN = "hf_test-token"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("open", "gated"):
        directory = tmp_path / "hub" / "demo" / name
        (directory / "original").mkdir(parents=True)
        (directory / "config.json").write_text('{"model_type": "llama"}')
        (directory / "model.safetensors").write_bytes(bytes(range(256)) * 4096)
        (directory / "original" / "pickle.bin").write_bytes(b"never wanted")
        (directory / ".hidden").write_text("not served")
    return tmp_path / "hub"


@pytest.fixture
async def server(root: Path) -> AsyncIterator[TestServer]:
    async with TestServer(Hub(find_repositories(root, ["demo/gated"], TOKEN)).application()) as server:
        yield server


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


async def download(server: TestServer, into: Path, name: str, **more: Any) -> Path:
    arguments: dict[str, Any] = {"repo_id": name, "endpoint": str(server.make_url("")).rstrip("/"), "local_dir": into}
    return Path(await asyncio.to_thread(snapshot_download, **arguments | {"token": False} | more))


def names(directory: Path) -> set[str]:
    files = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return {path.as_posix() for path in files if path.parts[0] != ".cache"}


async def test_a_snapshot_is_the_directory(server: TestServer, root: Path, tmp_path: Path) -> None:
    got = await download(server, tmp_path / "got", "demo/open")
    assert names(got) == {"config.json", "model.safetensors", "original/pickle.bin"}
    assert (got / "model.safetensors").read_bytes() == (root / "demo/open/model.safetensors").read_bytes()


async def test_patterns_leave_the_rest_where_it_is(server: TestServer, tmp_path: Path) -> None:
    got = await download(server, tmp_path / "got", "demo/open", allow_patterns=["*.safetensors", "*.json"])
    assert names(got) == {"config.json", "model.safetensors"}


async def test_a_commit_is_a_revision(server: TestServer, root: Path, tmp_path: Path) -> None:
    commit = Repository("demo/open", root / "demo/open").commit
    assert "config.json" in names(await download(server, tmp_path / "got", "demo/open", revision=commit))


async def test_the_clients_cache_layout_works_too(server: TestServer, root: Path, tmp_path: Path) -> None:
    got = await download(server, tmp_path, "demo/open", local_dir=None, cache_dir=tmp_path / "cache")
    assert got.name == Repository("demo/open", root / "demo/open").commit


async def test_a_gated_repository_opens_for_its_token(server: TestServer, tmp_path: Path) -> None:
    got = await download(server, tmp_path / "got", "demo/gated", token=TOKEN)
    assert "model.safetensors" in names(got)


@pytest.mark.parametrize("token", [False, "hf_another"])
async def test_a_gated_repository_stays_shut_without_it(server: TestServer, tmp_path: Path, token: bool | str) -> None:
    with pytest.raises(GatedRepoError) as refused:
        await download(server, tmp_path / "got", "demo/gated", token=token)
    assert TOKEN not in str(refused.value)
    assert not names(tmp_path / "got")


async def test_an_unknown_repository_is_not_found(server: TestServer, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError):
        await download(server, tmp_path / "got", "demo/absent")


async def test_an_unknown_revision_is_not_found(server: TestServer, tmp_path: Path) -> None:
    with pytest.raises(RevisionNotFoundError):
        await download(server, tmp_path / "got", "demo/open", revision="v9")


async def test_range_gives_the_rest_of_a_broken_download(server: TestServer, root: Path) -> None:
    url = server.make_url("/demo/open/resolve/main/model.safetensors")
    async with ClientSession() as session, session.get(url, headers={"Range": "bytes=1048000-"}) as answer:
        assert answer.status == 206
        assert await answer.read() == (root / "demo/open/model.safetensors").read_bytes()[1048000:]


@pytest.mark.parametrize(
    ("path", "code"), [("absent.json", "EntryNotFound"), ("..%2Fgated%2Fconfig.json", "EntryNotFound")]
)
async def test_only_files_of_the_repository_are_served(server: TestServer, path: str, code: str) -> None:
    from yarl import URL

    url = URL(str(server.make_url("/demo/open/resolve/main/")) + path, encoded=True)
    async with ClientSession() as session, session.get(url) as answer:
        assert (answer.status, answer.headers["X-Error-Code"]) == (404, code)


def test_the_token_is_not_printed() -> None:
    assert TOKEN not in repr(Repository("demo/gated", Path("/models"), TOKEN))


def test_command_line_names_single_directories(root: Path) -> None:
    arguments = ["--repository", f"team/one={root}/demo/open", "--gated", "team/one", "--token", TOKEN]
    [only] = repositories_of(parse(arguments))
    assert (only.name, only.directory, only.token) == ("team/one", root / "demo/open", TOKEN)


def test_a_gated_repository_without_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUB_TOKEN", raising=False)
    with pytest.raises(SystemExit):
        parse(["--gated", "team/one"])
