"""Which tokens the next step computes. Pure: no torch, no clock, no text.

A step is one packed row: first one token of every request that decodes, then chunks of prompts, oldest first, up to the
token budget. So decode never waits behind a long prompt by more than one budget, and prompts go on as budget is left.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from tokenpool_engine.cache import CacheFull, Ledger
from tokenpool_engine.request import Finish, Picked, Request


@dataclass(frozen=True)
class Slice:
    """Positions start … stop - 1 of one request. `samples`: the last of them gives the next token."""

    request: Request
    start: int
    stop: int
    samples: bool
    pages: tuple[int, ...]

    @property
    def size(self) -> int:
        """Tokens of this slice."""
        return self.stop - self.start


@dataclass(frozen=True)
class Step:
    """The slices of one packed row, decodes first."""

    slices: tuple[Slice, ...]

    @property
    def size(self) -> int:
        """Tokens of the row."""
        return sum(part.size for part in self.slices)


class Scheduler:
    """Requests in three places: waiting (first come, first served), running (oldest first), gone.

    A running request that finds no page free takes those of the youngest one, which goes back to the head of the
    queue and computes again what was not kept. The oldest can never lose its pages and one request always fits, so
    there is always progress.
    """

    def __init__(self, ledger: Ledger, token_budget: int, max_sequences: int) -> None:
        self.ledger = ledger
        self._budget = token_budget
        # Every running request needs its decode token in each step.
        self._max_sequences = min(max_sequences, token_budget)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._waiting_tokens = 0
        self.preemptions = 0
        self.recomputed_tokens = 0

    @property
    def is_idle(self) -> bool:
        """There is nothing to compute."""
        return not self.waiting and not self.running

    @property
    def outstanding_tokens(self) -> int:
        """Tokens of all requests that are still to be computed or generated, at most."""
        # Asked for in every step, and the queue may be long: what waits does not change.
        return self._waiting_tokens + sum(request.outstanding for request in self.running)

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ValueError when it can never fit: the door should have refused it."""
        if not request.prompt or self.ledger.pages_for(request.limit) > self.ledger.pages:
            raise ValueError(f"{request.id}: {request.limit} tokens do not fit in the cache")
        self.waiting.append(request)
        self._waiting_tokens += request.outstanding

    def cancel(self, request: Request) -> None:
        """Drop a request wherever it is; unknown ones are gone already."""
        if request in self.waiting:
            self.waiting.remove(request)
            self._waiting_tokens -= request.outstanding
        elif request in self.running:
            self._retire(request)
        request.finish = request.finish or Finish.CANCELLED

    def plan(self) -> Step:
        """The next step; empty when idle."""
        self._admit()
        parts: list[tuple[Request, int]] = []
        left = self._budget
        # Requests whose prompt is done decode one token each. They come first, so prompts get what is left.
        for request in sorted(self.running, key=lambda request: request.known - request.computed > 1):
            size = min(request.known - request.computed, left)
            if size and request in self.running and self._make_room(request, request.computed + size):
                parts.append((request, size))
                left -= size
        # Making room for one may have sent back another that had its part already.
        return Step(tuple(self._slice(request, size) for request, size in parts if request in self.running))

    def commit(self, step: Step, sampled: Mapping[str, Picked]) -> None:
        """Book a computed step: `sampled` maps request id to its next token, for slices that sample."""
        for part in step.slices:
            request = part.request
            if request not in self.running:
                continue
            self.recomputed_tokens += max(min(part.stop, request.reached) - part.start, 0)
            request.computed = part.stop
            request.reached = max(request.reached, part.stop)
            self._publish(request)
            if part.samples:
                request.append(sampled[request.id])
            if request.finish:
                self._retire(request)

    def fail(self, step: Step) -> list[Request]:
        """A step could not be computed: end its requests with an error and return them."""
        failed = [part.request for part in step.slices if part.request in self.running]
        for request in failed:
            request.finish = Finish.ERROR
            # Nobody may share what a failed step left in the pages.
            self._retire(request, forget=True)
        return failed

    def _slice(self, request: Request, size: int) -> Slice:
        stop = request.computed + size
        return Slice(request, request.computed, stop, stop == request.known, self.ledger.held(request.id))

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._max_sequences:
            request = self.waiting[0]
            # A page to grow for everybody who runs already, or the newcomer would soon be sent back.
            spare = min(len(self.running), self.ledger.pages - self.ledger.pages_for(request.known))
            outstanding = request.outstanding
            try:
                tokens = request.tokens(0, request.known)
                request.computed = self.ledger.reserve(request.id, tokens, request.known, spare)
            except CacheFull:
                # No overtaking: a small request that slips past could starve a big one for ever.
                return
            self.running.append(self.waiting.popleft())
            self._waiting_tokens -= outstanding

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Pages for so many tokens, at the expense of younger requests. False: the request itself had to go."""
        while True:
            try:
                self.ledger.grow(request.id, tokens)
            except CacheFull:
                youngest = self.running[-1]
                self._preempt(youngest)
                if youngest is request:
                    return False
            else:
                return True

    def _preempt(self, request: Request) -> None:
        self._retire(request)
        request.computed = 0
        self.waiting.appendleft(request)
        self._waiting_tokens += request.outstanding
        self.preemptions += 1

    def _publish(self, request: Request) -> None:
        """Offer the pages that this step filled to others."""
        size, first = self.ledger.page_tokens, self.ledger.published(request.id)
        if request.computed // size > first:
            self.ledger.publish(request.id, request.tokens(first * size, request.computed), first)

    def _retire(self, request: Request, *, forget: bool = False) -> None:
        self.running.remove(request)
        self.ledger.free(request.id, forget=forget)
