"""A simulated shard: continuous batching under a token budget, in steps whose time is a line fitted to measured ones.

Step time = BASE + DECODE x decoding sequences + PREFILL x prompt tokens: Llama-2-70B on eight H100s, as published with
Splitwise (bench/traces): 28 ms, 0.35 ms, 0.07 ms.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from router_bench.replay.traces import Arrival

BASE_SECONDS, DECODE_SECONDS, PREFILL_SECONDS = 0.028, 0.00035, 0.00007
BUDGET_TOKENS = 2048
MOST_SEQUENCES = 128
BLOCK_TOKENS = 512
CACHE_BLOCKS = 2000


@dataclass(eq=False)
class Running:
    """A request on a shard. `on_token` is called for the first token with True, for all others with False."""

    arrival: Arrival
    on_token: Callable[[float, bool], None]
    on_end: Callable[[], None]
    prompt_left: int = 0
    answer_left: int = 0


@dataclass(eq=False)
class SimulatedShard:
    """Time is the caller's: `start` tells how long the step takes, `finish` does what it brings."""

    speed: float = 1.0
    has_cache: bool = False
    waiting: deque[Running] = field(default_factory=deque)
    prefilling: deque[Running] = field(default_factory=deque)
    decoding: list[Running] = field(default_factory=list)
    busy_seconds: float = 0.0
    cached: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _chunk: list[tuple[Running, int]] = field(default_factory=list)

    def submit(self, request: Running) -> None:
        """Queue it; blocks that are in the cache need not be computed, but at least one token does."""
        request.prompt_left = max(request.arrival.prompt_tokens - self._hit(request.arrival.blocks) * BLOCK_TOKENS, 1)
        request.answer_left = request.arrival.answer_tokens
        self.waiting.append(request)

    def _hit(self, blocks: tuple[int, ...]) -> int:
        if not self.has_cache:
            return 0
        hit = 0
        for block in blocks:
            if block not in self.cached:
                break
            hit += 1
        for block in blocks:
            self.cached[block] = None
            self.cached.move_to_end(block)
        while len(self.cached) > CACHE_BLOCKS:
            self.cached.popitem(last=False)
        return hit

    def start(self) -> float | None:
        """Begin a step; its seconds, None when there is nothing to do."""
        while self.waiting and len(self.prefilling) + len(self.decoding) < MOST_SEQUENCES:
            self.prefilling.append(self.waiting.popleft())
        budget, self._chunk = max(BUDGET_TOKENS - len(self.decoding), 0), []
        for request in self.prefilling:
            if not budget:
                break
            tokens = min(request.prompt_left, budget)
            self._chunk.append((request, tokens))
            budget -= tokens
        prompt = sum(tokens for _, tokens in self._chunk)
        if not prompt and not self.decoding:
            return None
        seconds = (BASE_SECONDS + DECODE_SECONDS * len(self.decoding) + PREFILL_SECONDS * prompt) / self.speed
        self.busy_seconds += seconds
        return seconds

    def finish(self, now: float) -> None:
        """The step is over: a token for everybody who decodes, the first one for whose prompt is done."""
        still: list[Running] = []
        for request in self.decoding:
            self._token(request, now, still, is_first=False)
        for request, tokens in self._chunk:
            request.prompt_left -= tokens
            if not request.prompt_left:
                self.prefilling.remove(request)
                self._token(request, now, still, is_first=True)
        self.decoding = still

    def _token(self, request: Running, now: float, still: list[Running], *, is_first: bool) -> None:
        request.on_token(now, is_first)
        request.answer_left -= 1
        if request.answer_left:
            still.append(request)
        else:
            request.on_end()
