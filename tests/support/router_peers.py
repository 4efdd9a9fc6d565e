"""Routers of a pool as far as they meet in Redis: in the test's own process, or as processes that can be stopped.

`python -m support.router_peers` is such a process. It takes the lock of the pool's counts, says so, and writes what it
merged when it is told to, by a line on its standard input.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tokenpool_router.shared import OwnNumbers, SharedState, Sums
from tokenpool_router.shared.door import Door
from tokenpool_router.shared.keys import Keys
from tokenpool_router.shared.merging import Merging, do_work

POOL = "default/chat"


class Peer:
    """One router: what it has is set by the test, what it hears can be read."""

    def __init__(self, url_file: Path, name: str) -> None:
        self.numbers = OwnNumbers()
        self.vocabulary: dict[int, int] = {}
        self.heard = Sums()
        self.heard_times: list[float] = []
        self.shared = SharedState(
            url_file,
            POOL,
            name,
            on_elsewhere=self._hear,
            own=lambda: self.numbers,
            take_vocabulary=self._take,
            vocabulary_seconds=0.1,
        )

    def _hear(self, shards: Mapping[str, tuple[int, int]], callers: Mapping[str, tuple[int, int]]) -> None:
        self.heard = Sums(shards, callers)
        self.heard_times.append(asyncio.get_running_loop().time())

    def _take(self) -> Mapping[int, int]:
        taken, self.vocabulary = self.vocabulary, {}
        return taken

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Peer"]:
        """Until the block ends; a bug in it rises there."""
        task = asyncio.create_task(self.shared.run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class MergerProcess:
    """A router that merges once, in a process of its own."""

    def __init__(self, url_file: Path, token: str, lease_seconds: float) -> None:
        command = [sys.executable, "-m", "support.router_peers", str(url_file), token, str(lease_seconds)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def says(self) -> str:
        """Its next line: `locked FENCE` or `nothing`, then `written` or `refused`."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        """Let it begin, or write."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Take it away, in whatever state."""
        self.process.kill()
        self.process.communicate()


async def merge_once(url_file: Path, token: str, lease_seconds: float) -> None:
    """What the process does: ready, begin at a line, commit at the next."""
    merging = Merging(Door(url_file), Keys(POOL), token, lease_seconds=lease_seconds, pause_seconds=0.0)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    work = await merging.begin()
    print("nothing" if work is None else f"locked {work.fence}", flush=True)
    if work is not None:
        await asyncio.to_thread(sys.stdin.readline)
        print("written" if await merging.commit(do_work(work)) else "refused", flush=True)


if __name__ == "__main__":
    asyncio.run(merge_once(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
