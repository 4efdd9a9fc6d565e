"""What a shard counts of its work, and the sums that `/load` answers."""

from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import NamedTuple

from tokenpool_api.wire import ShardLoad
from tokenpool_engine.cache import Ledger
from tokenpool_engine.exposition import Histograms, registry
from tokenpool_engine.request import Finish
from tokenpool_engine.scheduler import Scheduler, Step
from tokenpool_engine.step_time import StepTime
from tokenpool_engine.stream import Stream

RATE_SECONDS = 10.0


class Recent(NamedTuple):
    """One step of the last seconds."""

    at: float
    prompt: int
    generated: int
    seconds: float


class Metrics:
    """Counts on the engine's thread; read from any."""

    def __init__(self, ledger: Ledger, token_budget: int, clock: Callable[[], float], model: str = "") -> None:
        self.ledger, self._budget, self._clock = ledger, token_budget, clock
        self._recent: deque[Recent] = deque()
        self.outstanding_tokens = 0
        self.step_time = StepTime()
        self.startup_seconds: dict[str, float] = {}
        self.ended = dict.fromkeys(Finish, 0)
        self.running = self.waiting = self.steps = self.prompt = self.generated = self.rows = 0
        self.preemptions = self.recomputed = self.asked = 0
        self.padding: Callable[[], int] = lambda: 0
        """Asks whoever computes the steps for the rows that are nobody's."""
        self._oldest_waiting: float | None = None
        self.histograms = Histograms(model)
        self.registry = registry(self, model)

    def observe_step(self, step: Step, seconds: float) -> None:
        """Book one computed step."""
        generated = sum(part.samples for part in step.slices)
        prompt = sum(max(min(part.stop, len(part.request.prompt)) - part.start, 0) for part in step.slices)
        decoding = sum(part.size == 1 for part in step.slices)
        self.steps += 1
        self.generated += generated
        self.prompt += prompt
        self.rows += step.size
        self.histograms.sequences.observe(len(step.slices))
        self.histograms.fill.observe(step.size / self._budget)
        self.histograms.step_seconds.observe(seconds)
        self.histograms.step_tokens.observe(step.size)
        self.step_time.observe(decoding, step.size - decoding, seconds)
        self._recent.append(Recent(self._clock(), prompt, generated, seconds))
        self._forget_old()

    def observe_start(self, stream: Stream, now: float) -> None:
        """A request's first tokens are computed now."""
        self.asked += len(stream.request.prompt)
        self.histograms.queue_seconds.observe(now - stream.submitted_at)

    def observe_tokens(self, stream: Stream, fresh: int, now: float) -> None:
        """A request got so many tokens; its stream knows when it got the ones before."""
        if not fresh:
            return
        self.startup_seconds.setdefault("first token", now - stream.submitted_at)
        if stream.latest_at is None:
            self.histograms.first_seconds.observe(now - stream.submitted_at)
        else:
            self.histograms.token_seconds.observe((now - stream.latest_at) / fresh, fresh)
        stream.latest_at = now

    def observe_end(self, stream: Stream) -> None:
        """A request is over for whoever asked."""
        ended = stream.ended or Finish.CANCELLED
        self.ended[ended] += 1
        if ended in (Finish.STOP, Finish.LENGTH):
            self.histograms.answer_seconds.observe(self._clock() - stream.submitted_at)
            self.histograms.prompt_lengths.observe(len(stream.request.prompt))
            self.histograms.answer_lengths.observe(len(stream.request.output))

    def observe_queues(self, scheduler: Scheduler, oldest_waiting: float | None = None) -> None:
        """Note how much there is to do, and since when the oldest waiting request waits."""
        self.running, self.waiting = len(scheduler.running), len(scheduler.waiting)
        self.outstanding_tokens = scheduler.outstanding_tokens
        self.preemptions, self.recomputed = scheduler.preemptions, scheduler.recomputed_tokens
        self._oldest_waiting = oldest_waiting

    @property
    def kv_tokens_capacity(self) -> int:
        """Tokens of all cache pages."""
        return self.ledger.capacity_tokens

    def tokens_per_second(self) -> float:
        """Generated tokens per second, mean over the last ten seconds."""
        return sum(step.generated for step in self._lately()) / RATE_SECONDS

    def load(self, *, ready: bool, draining: bool) -> ShardLoad:
        """The body of `/load`."""
        return ShardLoad(
            ready=ready,
            draining=draining,
            running_requests=self.running,
            waiting_requests=self.waiting,
            outstanding_tokens=self.outstanding_tokens,
            kv_tokens_reserved=self.ledger.reserved_tokens,
            kv_tokens_capacity=self.ledger.capacity_tokens,
            prompt_tokens_total=self.prompt,
            generated_tokens_total=self.generated,
            steps_total=self.steps,
            tokens_per_second=self.tokens_per_second(),
        )

    def _lately(self) -> list[Recent]:
        oldest = self._clock() - RATE_SECONDS
        return [step for step in tuple(self._recent) if step.at >= oldest]

    def _forget_old(self) -> None:
        oldest = self._clock() - RATE_SECONDS
        while self._recent and self._recent[0].at < oldest:
            self._recent.popleft()

    def idle_ratio(self) -> float:
        """Share of the last ten seconds without a step."""
        return max(1 - sum(step.seconds for step in self._lately()) / RATE_SECONDS, 0.0)

    def queue_age(self) -> float:
        """Seconds that the oldest request without a place has waited."""
        oldest = self._oldest_waiting
        return 0.0 if oldest is None else self._clock() - oldest

    def kv_share(self) -> float:
        """Share of cache pages that are held."""
        return self.ledger.reserved_tokens / self.ledger.capacity_tokens

    def valid_ratio(self) -> float:
        """Share of computed rows that brought a request forward: neither computed before a preemption, nor padding."""
        return (self.rows - self.recomputed) / (self.rows + self.padded_rows()) if self.rows else 1.0

    def padded_rows(self) -> int:
        """Rows beside the steps' own that were computed to fill up a shape."""
        return self.padding()

    def costs(self) -> dict[str, float]:
        """What a step takes, as far as it is known: seconds of an empty one, per sequence, per prompt token."""
        found = self.step_time.coefficients
        return {} if found is None else asdict(found)

    def work_per_second(self) -> float:
        """Tokens computed or generated per second: what outstanding tokens are done at."""
        return self.prompt_tokens_per_second() + self.tokens_per_second()

    def prompt_tokens_per_second(self) -> float:
        """Prompt tokens computed per second, mean over the last ten seconds."""
        return sum(step.prompt for step in self._lately()) / RATE_SECONDS
