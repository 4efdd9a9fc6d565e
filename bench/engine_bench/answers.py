"""What did the streams say? Read after the last byte, so that no JSON is parsed while a server is being timed. Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_bench.job import Outcome
from scoreboard.statistics import percentile

DONE = b"[DONE]"


@dataclass
class Recording:
    """One request as the socket saw it: when it was sent, and each piece of its body with the time of its arrival."""

    asked_tokens: int
    sent: float = 0.0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    status: int = 0
    error: str = ""


@dataclass(frozen=True)
class Answer:
    """`times` are those of the events that carry text; `tokens` is the server's own count, None where it gives none."""

    times: tuple[float, ...]
    tokens: int | None
    error: str = ""


def events(pieces: Iterable[tuple[float, bytes]]) -> Iterable[tuple[float, bytes]]:
    """Server-sent events with the time at which each was whole; pieces may end anywhere."""
    rest = b""
    for moment, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield moment, line[5:].strip()


def understand(recording: Recording) -> Answer:
    """The answer in a recording."""
    if recording.error or recording.status != 200:
        said = b"".join(piece for _, piece in recording.pieces)[:200].decode(errors="replace")
        return Answer((), None, recording.error or f"HTTP {recording.status}: {said}")
    times: list[float] = []
    tokens: int | None = None
    for moment, data in events(recording.pieces):
        if data == DONE:
            break
        event = json.loads(data)
        if event.get("error"):
            return Answer((), None, str(event["error"])[:200])
        if has_text(event):
            times.append(moment)
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    return Answer(tuple(times), tokens, "" if times else "an answer without text")


def has_text(event: dict[str, Any]) -> bool:
    """Whether a user would see something new."""
    return any(choice.get("text") for choice in event.get("choices") or ())


def summarize(recordings: Sequence[Recording], seconds: float, cpu_seconds: float) -> Outcome:
    """Figures of all requests; those that failed count as errors and nowhere else."""
    answers = [(recording, understand(recording)) for recording in recordings]
    good = [(recording, answer) for recording, answer in answers if not answer.error]
    counts = [len(answer.times) if answer.tokens is None else answer.tokens for _, answer in good]
    # What a static batch computes beyond what was asked for is nobody's.
    wanted = [min(count, recording.asked_tokens) for count, (recording, _) in zip(counts, good, strict=True)]
    first = [answer.times[0] - recording.sent for recording, answer in good]
    gaps = [after - before for _, answer in good for before, after in zip(answer.times, answer.times[1:], strict=False)]
    return Outcome(
        requests=len(good),
        tokens=sum(wanted),
        seconds=seconds,
        tokens_per_second=sum(wanted) / seconds,
        ttft_p50=milliseconds(first, 50),
        ttft_p99=milliseconds(first, 99),
        itl_p50=milliseconds(gaps, 50),
        itl_p99=milliseconds(gaps, 99),
        short=sum(count < recording.asked_tokens for count, (recording, _) in zip(counts, good, strict=True)),
        uncounted=sum(answer.tokens is None for _, answer in good),
        errors=tuple(answer.error for _, answer in answers if answer.error),
        load_cpu=cpu_seconds / seconds,
    )


def milliseconds(seconds: Sequence[float], percent: float) -> float:
    """A percentile of times; 0 where nothing was timed."""
    return percentile(seconds, percent) * 1000 if seconds else 0.0
