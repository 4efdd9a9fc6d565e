"""The round itself: start, warm, measure, stop; never two visits at the same time."""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from cluster.progress import step
from engine_bench import session
from engine_bench.engines import Engine
from engine_bench.job import Job, Outcome
from engine_bench.observations import Observations, Seen
from engine_bench.plan import Point, Visit
from engine_bench.server import NotServed, Running, ServerFailed, running
from engine_bench.weights import Model, read_through
from scoreboard import busy
from scoreboard.results import FOLDER

BENCH = Path(__file__).parents[1]
WARMING = Point("warm", 8, 8)
JOB_SECONDS = 900.0
NOT_IN_THIS_BUILD = "not served by this build"


class LoadFailed(RuntimeError):
    """The load process failed: a bug here, not the server's."""


def play(visit: Visit, engine: Engine, model: Model) -> Seen:
    """One visit from start to stop."""
    read_through(model)
    others = busy.look()
    if others >= busy.TOO_BUSY:
        print(f"{model.title:8}{engine.name:22}others use {others:.0%} of the cores just now", flush=True)
    with ExitStack() as stack:
        logs = FOLDER / "logs"
        with step(f"{model.title} · {engine.name}: start"):
            servers = [
                stack.enter_context(running(launch, logs / f"{visit.key.replace(' ', '-')}-{number}.log"))
                for number, launch in enumerate(engine.launches(model))
            ]
        warm(servers, engine, model)
        outcomes, peaks = {}, {}
        for point in visit.points:
            outcomes[point.key], peak = measured(point, servers, engine, model)
            if peak:
                peaks[point.key] = peak
            print(line(model, engine, point, outcomes[point.key]), flush=True)
        memory = sum(session.memory_bytes(server.session) for server in servers)
        return Seen(max(server.ready_seconds for server in servers), memory, outcomes, peaks, others)


def warm(servers: list[Running], engine: Engine, model: Model) -> None:
    """A few requests that nobody counts.

    Raises:
        ServerFailed: they fail; then so would the others.
    """
    with step(f"{model.title} · {engine.name}: warm-up"):
        errors = ask(WARMING, servers, engine, model).errors
    if errors:
        raise ServerFailed(f"{len(errors)} of {WARMING.requests} first requests failed: {errors[0]}")


def measured(point: Point, servers: list[Running], engine: Engine, model: Model) -> tuple[Outcome, int]:
    """A point's figures, and its peak memory if that is watched."""
    with step(f"{model.title} · {engine.name}: {point.requests} requests, {point.clients} clients"):
        if not point.watched:
            return ask(point, servers, engine, model), 0
        with session.PeakMemory([server.session for server in servers]) as peak:
            found = ask(point, servers, engine, model)
        return found, peak.bytes


def ask(point: Point, servers: list[Running], engine: Engine, model: Model) -> Outcome:
    """Play a load in its own process.

    Raises:
        LoadFailed: it did not end as it should.
    """
    job = Job(
        ports=tuple(server.port for server in servers),
        model=servers[0].model,
        words=str(model.words),
        stream=point.key,
        clients=point.clients,
        requests=point.requests,
        as_text=engine.as_text,
        in_groups=point.in_groups,
    )
    command = [sys.executable, "-m", "engine_bench.load"]
    done = subprocess.run(
        command,
        input=json.dumps(job.as_json()),
        cwd=BENCH,
        capture_output=True,
        text=True,
        check=False,
        timeout=JOB_SECONDS,
    )
    if done.returncode:
        raise LoadFailed(done.stderr[-2000:])
    return Outcome.from_json(json.loads(done.stdout))


def line(model: Model, engine: Engine, point: Point, found: Outcome) -> str:
    """What a person watches while it runs."""
    text = (
        f"{model.title:8}{engine.name:22}{point.clients:3} at once {found.tokens_per_second:8.1f} tok/s   "
        f"first token {found.ttft_p50:5.0f} / {found.ttft_p99:5.0f} ms   "
        f"between tokens {found.itl_p50:5.1f} / {found.itl_p99:5.0f} ms   {found.seconds:5.1f} s"
    )
    if found.short:
        text += f"   {found.short} short"
    if found.errors:
        text += f"   {len(found.errors)} ERRORS, first: {found.errors[0]}"
    return text


def play_round(
    visits: list[Visit], engines: Mapping[str, Engine | str], models: Mapping[str, Model], into: Observations
) -> None:
    """Each visit once; a failed server does not end the run. An engine that is text cannot be had: it says why."""
    for visit in visits:
        engine = engines[visit.engine]
        if isinstance(engine, str):
            into.absent[visit.key] = engine
            continue
        if into.absent.get(visit.key) == NOT_IN_THIS_BUILD:
            continue
        try:
            into.seen[visit.key].append(play(visit, engine, models[visit.model]))
        except NotServed:
            into.absent[visit.key] = NOT_IN_THIS_BUILD
            print(f"{models[visit.model].title:8}{engine.name:22}{NOT_IN_THIS_BUILD}", flush=True)
        except (ServerFailed, subprocess.TimeoutExpired) as error:
            into.seen[visit.key].append(None)
            into.absent[visit.key] = f"{engine.name} failed"
            print(f"{models[visit.model].title:8}{engine.name:22}FAILED: {error}", flush=True)
