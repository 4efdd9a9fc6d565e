"""Files that change under a running router: keys and certificates, mounted from Secrets."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tokenpool_router.callers import Caller
from tokenpool_router.callers.folder import read_callers
from tokenpool_router.control.supervisor import Supervisor

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0


async def follow_keys(folder: str, on_callers: Callable[[tuple[Caller, ...]], None]) -> None:
    """Tell who may come in, at once and after each change, until cancelled."""
    known: tuple[Caller, ...] | None = None
    told: tuple[str, ...] = ()
    while True:
        callers, errors = await asyncio.to_thread(read_callers, folder)
        if errors != told:
            for error in errors:
                log.error("API keys: %s", error)
            told = errors
        if callers != known:
            log.info("API keys of %d callers", len(callers))
            known = callers
            on_callers(callers)
        await asyncio.sleep(LOOK_SECONDS)


async def follow_certificate(folder: str, supervisor: Supervisor) -> None:
    """Tell the workers when the certificate is another one, until cancelled."""
    before = await asyncio.to_thread(_stamp, folder)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = await asyncio.to_thread(_stamp, folder)
        if now and now != before:
            before = now
            supervisor.tell({"kind": "tls"})


def _stamp(folder: str) -> tuple[tuple[int, int], ...]:
    """What changes when a file is replaced; empty while one is missing."""
    try:
        found = [Path(folder, name).stat() for name in ("tls.crt", "tls.key")]
    except OSError:
        return ()
    return tuple((stat.st_ino, stat.st_mtime_ns) for stat in found)
