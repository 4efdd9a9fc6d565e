"""Twice as much is asked for as the shards can do, by clients that come back when they are told to.

How much gets done, and does everybody who keeps to Retry-After get an answer? The shards stand in for real ones: a
fixed number of requests at a time, a fixed time for each, so that their capacity is known exactly.
"""

import asyncio
import random
import time
from dataclasses import dataclass

from router_bench import wire
from router_bench.lineup import SHARDS
from router_bench.stand_in import SERVICE_SECONDS, SLOTS

CAPACITY = SHARDS * SLOTS / SERVICE_SECONDS
TIMES = 2.0
ASK_SECONDS, WARM_SECONDS = 8.0, 2.0
MOST_TRIES = 100
PATIENCE_SECONDS = 90.0


@dataclass
class Tally:
    """When answers were whole, how often clients were sent away, and what went wrong."""

    answered: list[float]
    refused: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Overload:
    """Done per second as a share of what the shards can do; clients that got an answer, as a share; refusals."""

    goodput: float
    succeeded: float
    refused: int


async def ask(port: int, tally: Tally) -> None:
    """One client: asks, and asks again when it is told to."""
    for _ in range(MOST_TRIES):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire.request(kind="limited"))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"http/1.1 200"):
            body = await reader.readuntil(wire.LAST)
            tally.wrong = tally.wrong if wire.DONE in body else "an answer without its end"
            tally.answered.append(time.monotonic())
            writer.close()
            return
        writer.close()
        tally.refused += 1
        wait = head.partition(b"retry-after-ms: ")[2].split(b"\r\n", 1)[0]
        if not wait:
            tally.wrong = f"refused without a time: {head[:80]!r}"
            return
        await asyncio.sleep(int(wait) / 1000)


async def overload(port: int) -> Overload:
    """Arrivals at random times, for a while; then until the last client has its answer."""
    tally, draw = Tally([]), random.Random(1)
    began, clients = time.monotonic(), []
    while (now := time.monotonic()) < began + ASK_SECONDS:
        clients.append(asyncio.create_task(ask(port, tally)))
        await asyncio.sleep(max(draw.expovariate(CAPACITY * TIMES) - (time.monotonic() - now), 0))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*clients)
    if tally.wrong:
        raise RuntimeError(tally.wrong)
    inside = [at for at in tally.answered if began + WARM_SECONDS <= at < began + ASK_SECONDS]
    goodput = len(inside) / (ASK_SECONDS - WARM_SECONDS) / CAPACITY
    return Overload(goodput, len(tally.answered) / len(clients), tally.refused)
