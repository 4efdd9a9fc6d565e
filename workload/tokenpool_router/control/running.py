"""One worker process, from its start to its last word. Must not know why it is started, nor whether another follows."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tokenpool_router.control.line import Line, Message, open_line
from tokenpool_router.gauges import Gauges

WORKER: Final = (sys.executable, "-m", "tokenpool_router.worker")
# What a worker said before it ended lies in the line's buffer; only a child of its own could hold the line any longer.
LAST_WORDS_SECONDS: Final = 2.0


@dataclass(eq=False)
class Running:
    """One worker process."""

    row: int
    process: asyncio.subprocess.Process
    line: Line
    report: Message | None = None
    """The last one."""

    @property
    def is_serving(self) -> bool:
        """It takes clients, as far as one hears."""
        listening = self.line.listening
        return listening.done() and not listening.cancelled() and not self.line.closed.done()

    async def end(self) -> int:
        """Wait for its end, and for all that it said before. The exit code, or less than zero for a signal."""
        code = await self.process.wait()
        await asyncio.wait({self.line.closed}, timeout=LAST_WORDS_SECONDS)
        self.line.close()
        return code

    async def make_end(self, within_seconds: float) -> None:
        """A worker whose line is closed ends by itself; one that does not is made to."""
        self.line.close()
        try:
            async with asyncio.timeout(within_seconds):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()

    def kill(self) -> None:
        """At once, whatever it is doing. One that has ended does not mind."""
        if self.process.returncode is None:
            self.process.kill()


async def start_worker(
    command: Sequence[str],
    arguments: Sequence[str],
    row: int,
    gauges: Gauges,
    *,
    on_report: Callable[[Running, Message], None],
    on_spans: Callable[[list[Message]], None],
) -> Running:
    """A process with a line and its row of the table. Raises OSError when the machine has no room for one."""

    def reported(message: Message) -> None:
        worker.report = message
        on_report(worker, message)

    line, theirs = await open_line(reported, on_spans)
    try:
        with theirs:
            descriptors = (theirs.fileno(), gauges.descriptor)
            flags = ["--link-fd", str(descriptors[0]), "--gauges-fd", str(descriptors[1]), "--row", str(row)]
            process = await asyncio.create_subprocess_exec(*command, *flags, *arguments, pass_fds=descriptors)
    except BaseException:
        line.close()
        raise
    # Nothing is read from the line before this task waits again, so `worker` is there when the first report comes.
    worker = Running(row, process, line)
    return worker
