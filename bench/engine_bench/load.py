"""The load, in a process of its own: `python -m engine_bench.load` reads a job on standard input and answers on output.

It shares the cores with the server that it measures. So it prepares all bodies first, keeps raw bytes while it runs
(uvloop and httptools; no JSON, no garbage collection) and reads them afterwards.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import uvloop

from engine_bench.answers import Recording, summarize
from engine_bench.connection import Connection, opened
from engine_bench.job import Job, Outcome
from engine_bench.requests import body, draw, read_words, static_batches

Work = tuple[bytes, Recording]


def prepare(job: Job) -> list[Work]:
    """Bodies in order, each with an empty recording."""
    words = read_words(Path(job.words))
    wanted = [draw(job.stream, index, len(words)) for index in range(job.requests)]
    asked = static_batches(wanted, job.clients) if job.in_groups else wanted
    bodies = (body(request, words, as_text=job.as_text, model=job.model) for request in asked)
    return [(content, Recording(request.answer_tokens)) for content, request in zip(bodies, wanted, strict=True)]


async def client(job: Job, number: int, work: Iterator[Work]) -> None:
    """Send the next request when the last one has ended, over one connection as long as the server keeps it."""
    port = job.ports[number % len(job.ports)]
    connection: Connection | None = None
    for content, recording in work:
        try:
            if connection is None or not connection.is_open:
                connection = await opened(port)
            await connection.ask(content, recording, job.request_seconds)
        except OSError as error:
            recording.error = f"no connection: {error}"
    if connection:
        connection.close()


async def play(job: Job, work: list[Work]) -> None:
    """All requests, as the job says."""
    size = job.clients if job.in_groups else len(work)
    for start in range(0, len(work), size):
        shared = iter(work[start : start + size])
        await asyncio.gather(*(client(job, number, shared) for number in range(job.clients)))


def run(job: Job) -> Outcome:
    """Play a job and say what came of it."""
    work = prepare(job)
    gc.collect()
    gc.disable()
    cpu, began = time.process_time(), time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play(job, work))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    return summarize([recording for _, recording in work], seconds, cpu_seconds)


if __name__ == "__main__":
    json.dump(asdict(run(Job.from_json(json.load(sys.stdin)))), sys.stdout)
