"""The order in which a step's integers travel, told by stand-ins for streams and events."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tokenpool_engine.compute import staging
from tokenpool_engine.compute.staging import Lane, Staging

CPU = torch.device("cpu")


class World:
    """Streams and events in their order; names are given as they are made."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.present = "main"
        self.made = 0

    def event(self) -> "Event":
        self.made += 1
        return Event(self, f"event {self.made}")

    @contextmanager
    def stream(self, stream: "Stream") -> Iterator[None]:
        before, self.present = self.present, stream.name
        yield
        self.present = before


class Event:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def record(self, stream: "Stream | None" = None) -> None:
        self.world.notes.append(f"{stream.name if stream else self.world.present} records {self.name}")

    def synchronize(self) -> None:
        self.world.notes.append(f"host waits for {self.name}")


class Stream:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def wait_event(self, event: Event) -> None:
        self.world.notes.append(f"{self.name} waits for {event.name}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: Stream(world, "copies"))
    monkeypatch.setattr(torch.cuda, "Event", world.event)
    monkeypatch.setattr(torch.cuda, "stream", world.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: Stream(world, world.present))
    empty = torch.empty

    def unpinned(*size: Any, pin_memory: bool = False, **given: Any) -> torch.Tensor:
        return empty(*size, **given)

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(staging, "SMALLEST", 4)
    return world


@pytest.fixture
def subject(world: World) -> Staging:
    """Two lanes: events 1 and 2 are the first one's copied and used, 3 and 4 the second one's."""
    made = Staging(CPU)
    made._lanes = [Lane(CPU), Lane(CPU)]
    world.notes.clear()
    return made


def test_a_cpu_gives_back_what_it_was_given() -> None:
    parts = [torch.tensor([1, 2]), torch.tensor([3])]
    assert [found is part for found, part in zip(Staging(CPU).send(parts), parts, strict=True)] == [True, True]


def test_a_lane_is_written_when_its_copy_is_over_and_its_readers_are_launched(world: World, subject: Staging) -> None:
    subject.send([torch.tensor([1])])
    assert world.notes == [
        "main records event 2",
        "host waits for event 3",
        "copies waits for event 4",
        "copies records event 3",
        "main waits for event 3",
    ]
    world.notes.clear()
    subject.send([torch.tensor([2])])
    assert world.notes == [
        "main records event 4",
        "host waits for event 1",
        "copies waits for event 2",
        "copies records event 1",
        "main waits for event 1",
    ]


def test_what_was_sent_stays_for_one_step_more(world: World, subject: Staging) -> None:
    first, second = subject.send([torch.tensor([1, 2]), torch.tensor([3])])
    subject.send([torch.tensor([7, 8, 9])])
    assert (first.tolist(), second.tolist()) == ([1, 2], [3])
    subject.send([torch.tensor([4, 5, 6])])
    assert (first.tolist(), second.tolist()) == ([4, 5], [6])


def test_a_lane_grows_and_waits_for_who_had_the_memory(world: World, subject: Staging) -> None:
    numbers = torch.arange(11)
    (found,) = subject.send([numbers])
    assert torch.equal(found, numbers)
    assert world.notes[:4] == [
        "main records event 2",
        "host waits for event 3",
        "main records event 4",
        "copies waits for event 4",
    ]
