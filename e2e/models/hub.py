"""A stand-in of the model hub's file API: as much as `huggingface_hub.snapshot_download` asks for, from directories.

One file on aiohttp alone, so that it also runs inside a cluster from the engine's image. It must not know the product.
"""

import argparse
import asyncio
import hashlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from aiohttp import web


@dataclass(frozen=True)
class Repository:
    """One model; `token` is the bearer token that a gated one asks for."""

    name: str
    directory: Path
    token: str | None = field(default=None, repr=False)

    @cached_property
    def files(self) -> dict[str, Path]:
        """Relative path → file, hidden ones left out."""
        found = (path for path in sorted(self.directory.rglob("*")) if path.is_file())
        named = {path.relative_to(self.directory).as_posix(): path for path in found}
        return {name: path for name, path in named.items() if not any(part[0] == "." for part in name.split("/"))}

    @cached_property
    def commit(self) -> str:
        """40 hex digits that change with the names and sizes of the files, as the client expects of a revision."""
        listing = "\n".join(f"{name} {path.stat().st_size}" for name, path in self.files.items())
        return hashlib.sha256(f"{self.name}\n{listing}".encode()).hexdigest()[:40]

    def blob(self, name: str) -> str:
        """The ETag of a file. Weights are named by commit and path: hashing gigabytes would delay the first answer."""
        return hashlib.sha256(f"{self.commit}/{name}".encode()).hexdigest()[:40]


class Hub:
    """The routes of the hub over a fixed set of repositories."""

    def __init__(self, repositories: Iterable[Repository]) -> None:
        self.repositories = {repository.name: repository for repository in repositories}

    def application(self) -> web.Application:
        """The aiohttp application; HEAD comes with every GET."""
        application = web.Application()
        application.router.add_get("/api/models/{org}/{name}", self.info)
        application.router.add_get("/api/models/{org}/{name}/revision/{revision}", self.info)
        application.router.add_get("/api/models/{org}/{name}/tree/{revision}", self.tree)
        application.router.add_get("/{org}/{name}/resolve/{revision}/{path:.+}", self.resolve)
        return application

    async def info(self, request: web.Request) -> web.Response:
        """What a revision is: its commit and the names of its files."""
        repository = self.repository(request)
        siblings = [{"rfilename": name} for name in repository.files]
        gated = "manual" if repository.token else False
        return web.json_response(
            {"id": repository.name, "sha": repository.commit, "siblings": siblings, "gated": gated, "private": False}
        )

    async def tree(self, request: web.Request) -> web.Response:
        """Every file with its size, in one page."""
        repository = self.repository(request)
        return web.json_response(
            [
                {"type": "file", "path": name, "size": path.stat().st_size, "oid": repository.blob(name)}
                for name, path in repository.files.items()
            ]
        )

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        """One file; aiohttp does HEAD, Content-Length and Range."""
        repository = self.repository(request)
        name = request.match_info["path"]
        if name not in repository.files:
            refuse(web.HTTPNotFound, "EntryNotFound", f"{name} is not in {repository.name}", repository.commit)
        headers = {"X-Repo-Commit": repository.commit, "X-Linked-Etag": f'"{repository.blob(name)}"'}
        return web.FileResponse(repository.files[name], headers=headers)

    def repository(self, request: web.Request) -> Repository:
        """The repository and revision that a request names, if it exists and the caller may read it."""
        name = f"{request.match_info['org']}/{request.match_info['name']}"
        repository = self.repositories.get(name)
        if repository is None:
            refuse(web.HTTPNotFound, "RepoNotFound", f"Repository {name} not found")
        if repository.token and request.headers.get("Authorization") != f"Bearer {repository.token}":
            refusal = web.HTTPForbidden if "Authorization" in request.headers else web.HTTPUnauthorized
            refuse(refusal, "GatedRepo", f"Access to model {name} is restricted")
        revision = request.match_info.get("revision", "main")
        if revision not in ("main", repository.commit):
            refuse(web.HTTPNotFound, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository


def refuse(status: type[web.HTTPError], code: str, message: str, commit: str | None = None) -> NoReturn:
    """Answer as the hub does: the client reads the code from a header."""
    headers = {"X-Error-Code": code, "X-Error-Message": message} | ({"X-Repo-Commit": commit} if commit else {})
    raise status(headers=headers, text=message)


def find_repositories(root: Path, gated: Iterable[str] = (), token: str | None = None) -> list[Repository]:
    """Every `root`/organisation/name as a repository; those named in `gated` ask for `token`."""
    closed = set(gated)
    directories = {f"{path.parent.name}/{path.name}": path for path in sorted(root.glob("*/*")) if path.is_dir()}
    return [Repository(name, path, token if name in closed else None) for name, path in directories.items()]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; a gated repository without a token would be open, so that is refused."""
    parser = argparse.ArgumentParser(prog="models.hub", description=__doc__)
    parser.add_argument("--root", type=Path, help="serve each ROOT/organisation/name")
    parser.add_argument("--repository", action="append", default=[], metavar="ORG/NAME=DIRECTORY", help="one more")
    parser.add_argument("--gated", action="append", default=[], metavar="ORG/NAME", help="asks for the token")
    parser.add_argument("--token", default=os.environ.get("HUB_TOKEN"), help="default: the environment's HUB_TOKEN")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090)
    parsed = parser.parse_args(arguments)
    if parsed.gated and not parsed.token:
        parser.error("--gated needs --token or HUB_TOKEN")
    return parsed


def repositories_of(parsed: argparse.Namespace) -> list[Repository]:
    """The repositories that a command line asks for."""
    found = find_repositories(parsed.root, parsed.gated, parsed.token) if parsed.root else []
    for pair in parsed.repository:
        name, _, directory = pair.partition("=")
        found.append(Repository(name, Path(directory), parsed.token if name in parsed.gated else None))
    return found


async def serve(parsed: argparse.Namespace) -> None:
    """Serve until a signal says stop; as the first process of a container nothing else would end it."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(Hub(repositories_of(parsed)).application())
    await runner.setup()
    try:
        await web.TCPSite(runner, parsed.host, parsed.port).start()
        print(f"hub on {parsed.host}:{parsed.port}", flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(parse()))
