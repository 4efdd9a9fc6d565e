"""A whole shard on loopback, inside the test's process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tokenpool_engine import admin
from tokenpool_engine.api.server import Api
from tokenpool_engine.assembly import build
from tokenpool_engine.process import listen
from tokenpool_engine.settings import Serve, parse
from tokenpool_engine.shard import Shard


class Running:
    """A served shard: its parts, and where it listens."""

    def __init__(self, shard: Shard, api: Api, url: str, admin_url: str, http: aiohttp.ClientSession) -> None:
        self.shard, self.api, self.url, self.admin_url, self.http = shard, api, url, admin_url, http
        assert shard.parts
        self.parts = shard.parts

    async def post(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        async with self.http.post(self.url + path, json={"model": "tiny", **body}) as answer:
            return answer.status, await answer.json()

    async def stream(self, **body: Any) -> list[str]:
        whole = {"model": "tiny", "prompt": "abc", "stream": True, "temperature": 0, "ignore_eos": True, **body}
        async with self.http.post(f"{self.url}/v1/completions", json=whole) as answer:
            text = await answer.text()
        return [event.removeprefix("data: ") for event in text.split("\n\n") if event]

    async def admin(self, path: str) -> tuple[int, str]:
        async with self.http.get(self.admin_url + path) as answer:
            return answer.status, await answer.text()


def port_of(runner: Any) -> int:
    port: int = runner.addresses[0][1]
    return port


@asynccontextmanager
async def run_shard(tiny_model: Path) -> AsyncIterator[Running]:
    """Serve the model until the end of the block."""
    arguments = ["serve", "--model", str(tiny_model), "--served-name", "tiny", "--token-budget", "32"]
    arguments += ["--max-sequences", "8", "--kv-cache-tokens", "2048", "--dtype", "float32", "--threads", "1"]
    arguments += ["--drain-seconds", "5", "--queue-tokens", "4096", "--host", "127.0.0.1", "--port", "0"]
    settings = parse([*arguments, "--admin-port", "0"])
    assert isinstance(settings, Serve)
    shard = Shard("tiny")
    shard.parts = build(settings, shard)
    shard.parts.engine.start(asyncio.get_running_loop())
    api = Api(shard)
    runners = [await listen(app, "127.0.0.1", 0) for app in (api.application(), admin.application(shard))]
    urls = [f"http://127.0.0.1:{port_of(runner)}" for runner in runners]
    async with aiohttp.ClientSession() as http:
        yield Running(shard, api, urls[0], urls[1], http)
    for runner in runners:
        await runner.cleanup()
    await asyncio.to_thread(shard.parts.engine.stop)
