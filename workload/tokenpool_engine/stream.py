"""A request's way back: what each step brought to it, from the engine's thread to the event loop."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tokenpool_engine.request import Finish, Picked, Request


class Update(NamedTuple):
    """What a step brought to one request; several that nobody had time for become one."""

    tokens: tuple[int, ...] = ()
    finish: Finish | None = None
    error: str = ""
    picked: tuple[Picked, ...] = ()
    """The tokens with their log probabilities, where asked for."""


ENDED: Final = Update(finish=Finish.ERROR, error="the shard's engine has ended")


class Mailbox:
    """Updates on the event loop's side. Who listens is called at once, in the loop, without a task to wake."""

    def __init__(self) -> None:
        self._waiting: list[Update] = []
        self._listener: Callable[[], None] | None = None
        self._arrived = asyncio.Event()

    def put_nowait(self, update: Update) -> None:
        """Take an update in and call the listener."""
        self._waiting.append(update)
        if self._listener:
            self._listener()
        else:
            self._arrived.set()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` for every update from now on, and now if there are any."""
        self._listener = listener
        if self._waiting:
            listener()

    def take(self) -> Update | None:
        """Everything that waits, as one update; what came after the end is dropped."""
        waiting = self._waiting
        if not waiting:
            return None
        if len(waiting) == 1:
            return waiting.pop()
        self._waiting = []
        return join(waiting)

    async def get(self) -> Update:
        """The same, but wait until there is something."""
        while (update := self.take()) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return update


def join(updates: list[Update]) -> Update:
    """Several updates in order as one, up to the first that ends the request."""
    end = next((at for at, update in enumerate(updates) if update.finish), len(updates) - 1)
    held = updates[: end + 1]
    tokens = tuple(token for update in held for token in update.tokens)
    picked = tuple(one for update in held for one in update.picked)
    return Update(tokens, held[-1].finish, held[-1].error, picked)


@dataclass(eq=False)
class Stream:
    """A request and the mailbox for its updates. The last update has `finish`."""

    request: Request
    updates: Mailbox = field(default_factory=Mailbox)
    given: int = 0
    """Tokens of the output handed out so far, here or by another shard before; the engine's."""
    submitted_at: float = 0.0
    started: bool = False
    """Some of it is computed."""
    latest_at: float | None = None
    """When it got its latest token."""
    ended: Finish | None = None
    """How the answer ended, which a stop string may do before the engine does; the server's."""

    def news(self) -> Update:
        """What the request has that was not handed out. On the engine's thread."""
        request = self.request
        fresh = tuple(request.output[self.given :])
        self.given += len(fresh)
        picked = tuple(request.picked)
        request.picked.clear()
        return Update(fresh, request.finish, request.trouble, picked)
