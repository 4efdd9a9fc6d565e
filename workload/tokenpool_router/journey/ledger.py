"""What is written down of each request: counts, the access log, spans, and a sample of its tokens."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tokenpool_router.http.refusals import QUARANTINED
from tokenpool_router.journey.access_log import AccessLog, Entry
from tokenpool_router.journey.counts import Counts
from tokenpool_router.sharding import Shard

if TYPE_CHECKING:
    from tokenpool_router.journey.journey import Journey

# One answer in so many tells its tokens to the vocabulary: what is frequent shows all the same.
VOCABULARY_SAMPLE: Final = 8
MOST_VOCABULARY: Final = 200_000
OK: Final = 200
SERVER_ERROR: Final = 500
CANCELLED: Final = "cancelled"
CUT: Final = "cut"


class Ledger:
    """Owns the numbers; the loop's clock and the wall's come in."""

    def __init__(self, access_log: AccessLog | None, wall: Callable[[], float]) -> None:
        self.counts = Counts()
        self.spans: list[dict[str, Any]] | None = None
        """Finished spans to be sent on; None where nobody wants them."""
        self._access_log, self._wall = access_log, wall
        self._vocabulary: Counter[bytes] = Counter()
        self._answers = 0

    def arrived(self, journey: "Journey") -> None:
        """A request that is let in, or would be if there were room."""
        self.counts.arrived_prompt.add(journey.prompt_tokens)
        self.counts.arrived_answer.add(journey.answer_tokens)

    def answer_began(self, journey: "Journey") -> None:
        """The first byte of an answer came."""
        self.counts.first_seconds.observe(
            journey.first_at - journey.began, journey.shard.revision if journey.shard else ""
        )
        self.counts.queue_seconds.observe(journey.leased_at - journey.began)

    def shard_failed(self, shard: Shard) -> None:
        """An attempt came to nothing."""
        self.counts.revision_errors.add(1, shard.revision)

    def retried(self) -> None:
        """Another shard is asked, for all of the answer or for its rest."""
        self.counts.retries.add()

    def concluded(self, journey: "Journey", now: float) -> None:
        """The end of a request, whatever it was."""
        counts = self.counts
        status, refusal, shard, caller = journey.status, journey.refusal, journey.shard, journey.caller
        counts.requests.add(1, "200" if status == OK else str(status))
        counts.prompt_tokens.add(journey.told_prompt_tokens)
        counts.completion_tokens.add(journey.passed_tokens)
        counts.seconds.observe(now - journey.began)
        if refusal:
            counts.refused.add(1, refusal.code)
            if refusal.code == QUARANTINED.code:
                counts.quarantined.add()
        if journey.outcome == CANCELLED:
            counts.cancelled.add()
        elif journey.outcome == CUT:
            counts.cut.add()
        if journey.is_rest:
            counts.continuations.add(1, str(journey.outcome))
        if shard:
            counts.revision_requests.add(1, shard.revision)
            if status >= SERVER_ERROR and not refusal:
                counts.revision_errors.add(1, shard.revision)
        if caller:
            counts.caller_requests.add(1, caller.name)
            counts.caller_tokens.add(journey.told_prompt_tokens + journey.passed_tokens, caller.name)
        self._sample(journey.token_ids)
        if self._access_log:
            self._access_log.add(self._entry(journey, now))
        if self.spans is not None and journey.trace and journey.trace.is_sampled:
            self.spans.append(self._span(journey, now))

    def _sample(self, ids: bytes) -> None:
        if not ids:
            return
        self._answers += 1
        if self._answers % VOCABULARY_SAMPLE == 0 and len(self._vocabulary) < MOST_VOCABULARY:
            self._vocabulary.update(ids.split(b","))

    def take_vocabulary(self) -> dict[str, int]:
        """Token ids and how often they were seen since the last call."""
        taken, self._vocabulary = self._vocabulary, Counter()
        return {token.decode(): count for token, count in taken.items()}

    def _entry(self, journey: "Journey", now: float) -> Entry:
        """The log's own thread makes words of it."""
        request, began = journey.request, journey.began
        return (
            self._wall(),
            request.request_id,
            journey.caller.name if journey.caller else None,
            request.method,
            request.target,
            journey.status,
            str(journey.outcome),
            journey.refusal.code if journey.refusal else None,
            journey.shard.id if journey.shard else None,
            journey.attempts,
            journey.told_prompt_tokens,
            journey.passed_tokens,
            journey.leased_at - began if journey.leased_at else None,
            journey.first_at - began if journey.first_at else None,
            now - began,
        )

    def _span(self, journey: "Journey", now: float) -> dict[str, Any]:
        trace = journey.trace
        assert trace is not None  # noqa: S101 - the caller looked
        end = self._wall()
        return {
            "trace_id": trace.trace_id.decode(),
            "span_id": trace.span_id.decode(),
            "parent_id": trace.parent_id.decode(),
            "name": (journey.request.method + b" " + journey.request.path).decode(errors="replace"),
            "start": int((end - (now - journey.began)) * 1e9),
            "end": int(end * 1e9),
            "attributes": {
                "gen_ai.request.model": journey.facts.model,
                "gen_ai.usage.input_tokens": journey.told_prompt_tokens,
                "gen_ai.usage.output_tokens": journey.passed_tokens,
                "server.address": journey.shard.address if journey.shard else "",
                "http.response.status_code": journey.status,
                "tokenpool.attempts": journey.attempts,
                "tokenpool.ttft_ms": round((journey.first_at - journey.began) * 1000, 1) if journey.first_at else 0,
            },
            "error": journey.refusal.code if journey.refusal else "",
        }
