"""A whole router, control process and workers, as a test wants it: ports of its own, and its log read.

Knows the router's command line and admin port, nothing of its modules.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

LOOPBACK = ("--host", "127.0.0.1")


@dataclass
class RouterProcess:
    """A router that is ready."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    port: int
    admin_port: int

    async def get(self, path: str) -> tuple[int, str]:
        """Ask the admin port."""
        async with self.session.get(f"http://127.0.0.1:{self.admin_port}{path}") as response:
            return response.status, await response.text()

    async def until(self, path: str, is_right: Callable[[int, str], bool]) -> str:
        """The first answer of the admin port that is right."""
        async with asyncio.timeout(30):
            while True:
                status, text = await self.get(path)
                if is_right(status, text):
                    return text
                await asyncio.sleep(0.05)

    def workers(self) -> list[int]:
        """Their process ids."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in found]


@asynccontextmanager
async def process_of(*flags: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[RouterProcess]:
    """Run one, in a process group of its own, until the end of the block; or until the test has ended it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tokenpool_router", *LOOPBACK, "--port", "0", "--admin-port", "0", *flags,
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    assert process.stderr
    words = (await asyncio.wait_for(process.stderr.readuntil(b"\n"), 30)).decode().replace(",", "").split()
    port, admin_port = (int(word) for word in words if word.isdecimal())
    try:
        async with aiohttp.ClientSession() as session:
            router = RouterProcess(process, session, port, admin_port)
            await router.until("/readyz", lambda status, _: status == 200)
            yield router
    finally:
        if process.returncode is None:
            process.kill()
        # What it wrote and nobody read would keep it waiting.
        await process.communicate()


async def failing(*flags: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and log of a router that cannot start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tokenpool_router", *LOOPBACK, *flags,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    try:
        _, said = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, said.decode()
