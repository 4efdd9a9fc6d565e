"""The traces, as requests with times. Seeded where something is drawn."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parents[2] / "traces"
LAST_TICK_SECONDS = 3.0


@dataclass(frozen=True)
class Arrival:
    """One request: when, how long, and the blocks of its prompt where the trace tells them."""

    at: float
    prompt_tokens: int
    answer_tokens: int
    blocks: tuple[int, ...] = ()


def load(name: str) -> list[Arrival]:
    """A trace of the folder, in order of arrival."""
    with gzip.open(FOLDER / f"{name}.csv.gz", "rt") as file:
        return [
            Arrival(
                float(row["arrival_seconds"]),
                int(row["input_tokens"]),
                max(int(row["output_tokens"]), 1),
                tuple(map(int, row.get("prefix_block_ids", "").split())),
            )
            for row in csv.DictReader(file)
        ]


def spread(arrivals: list[Arrival], seed: int) -> list[Arrival]:
    """Requests that were recorded in the same tick, over the time to the next one: clocks tick, clients do not."""
    random, ticks = Random(seed), [list(group) for _, group in groupby(arrivals, key=lambda one: one.at)]
    ends = [*(group[0].at for group in ticks[1:]), ticks[-1][0].at + LAST_TICK_SECONDS]
    found = [
        Arrival(random.uniform(one.at, end), one.prompt_tokens, one.answer_tokens, one.blocks)
        for group, end in zip(ticks, ends, strict=True)
        for one in group
    ]
    return sorted(found, key=lambda one: one.at)


def faster(arrivals: list[Arrival], times: float, most: int | None = None) -> Iterator[Arrival]:
    """The same requests in less time; only the first `most`."""
    for one in arrivals[:most]:
        yield Arrival(one.at / times, one.prompt_tokens, one.answer_tokens, one.blocks)
