"""What one proxy costs: CPU a request, CPU an event, time to the first token, memory of many open streams."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from router_bench import wire
from router_bench.clients import Client, Tally, checked
from router_bench.process import Running

CONNECTIONS = 32
WARM_SECONDS = 1.0
STREAMS = 200
OPEN_STREAMS = 5000
# So many connections are opened at a time: nobody's backlog is what is measured.
STEP = 100
FIRST_SECONDS = 30.0


@dataclass(frozen=True)
class Bursts:
    """Whole answers at once, as many as go."""

    requests_per_second: float
    cpu_microseconds: float


@dataclass(frozen=True)
class Paced:
    """200 streams of an event every 20 ms."""

    cpu_microseconds: float
    first_p50_milliseconds: float
    first_p99_milliseconds: float


@dataclass(frozen=True)
class Open:
    """Streams that stay open after their first event."""

    megabytes: float
    by_process: tuple[float, ...]


async def clients(
    tally: Tally, port: int, *, kind: str, events: int, count: int, goes_on: Callable[[], bool]
) -> list[Client]:
    """Connected, and asking."""
    loop = asyncio.get_running_loop()
    made = []
    for number in range(count):
        _, client = await loop.create_connection(lambda: Client(tally, kind, events, goes_on), "127.0.0.1", port)
        made.append(client)
        if number % STEP == STEP - 1:
            await asyncio.sleep(0.02)
    return made


async def bursts(port: int, proxy: Running | None, seconds: float, count: int = CONNECTIONS) -> Bursts:
    """Raises WrongAnswer."""
    tally, stop = Tally(), asyncio.Event()

    def is_on() -> bool:
        return not stop.is_set()

    connected = await clients(tally, port, kind="burst", events=wire.EVENTS, count=count, goes_on=is_on)
    await asyncio.sleep(WARM_SECONDS)
    before, cpu, began = tally.answers, cpu_of(proxy), time.perf_counter()
    await asyncio.sleep(seconds)
    answers, used, took = tally.answers - before, cpu_of(proxy) - cpu, time.perf_counter() - began
    stop.set()
    await finish(connected)
    checked(tally)
    return Bursts(answers / took, used / max(answers, 1) * 1e6)


async def paced(port: int, proxy: Running | None, seconds: float) -> Paced:
    """Raises WrongAnswer."""
    tally, stop = Tally(), asyncio.Event()

    def is_on() -> bool:
        return not stop.is_set()

    connected = await clients(tally, port, kind="paced", events=wire.PACED_EVENTS + 1, count=STREAMS, goes_on=is_on)
    await asyncio.sleep(WARM_SECONDS)
    tally.first_seconds.clear()
    before, cpu = tally.events, cpu_of(proxy)
    await asyncio.sleep(seconds)
    events, used = tally.events - before, cpu_of(proxy) - cpu
    firsts = sorted(tally.first_seconds)
    stop.set()
    await finish(connected)
    checked(tally)
    return Paced(used / max(events, 1) * 1e6, at(firsts, 0.5) * 1000, at(firsts, 0.99) * 1000)


async def opened(port: int, proxy: Running, count: int = OPEN_STREAMS) -> Open:
    """Raises WrongAnswer."""
    tally = Tally()
    connected = await clients(tally, port, kind="held", events=1, count=count, goes_on=lambda: False)
    async with asyncio.timeout(FIRST_SECONDS):
        await asyncio.gather(*[client.first for client in connected])
    memory = [size / 1e6 for size in proxy.memory()]
    for client in connected:
        client.close()
    checked(tally)
    return Open(sum(memory), tuple(memory))


async def finish(connected: list[Client]) -> None:
    """Let the answers that are on their way end."""
    async with asyncio.timeout(FIRST_SECONDS):
        await asyncio.gather(*[client.done for client in connected])
    for client in connected:
        client.close()


def cpu_of(proxy: Running | None) -> float:
    """CPU seconds so far; 0 where clients talk to shards directly."""
    return proxy.cpu_seconds() if proxy else 0.0


def at(ordered: list[float], share: float) -> float:
    """A quantile of sorted values."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")
