"""The catalogue of what a router counts: names, helps, labels, buckets. Workers count, the control process exposes.

Labels are bounded: statuses, reasons, revisions and the callers of the pool's Secret; never a client's own words.
"""

from dataclasses import dataclass
from typing import Final

FAST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True)
class Series:
    """One counter, or a histogram if it has buckets (upper bounds, +Inf left out)."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


REQUESTS: Final = Series("tokenpool_router_requests", "Requests by the status that was answered", ("code",))
RETRIES: Final = Series("tokenpool_router_retries", "Attempts on another shard after a failed one")
CONTINUATIONS: Final = Series(
    "tokenpool_router_continuations", "Streams gone on with on another shard, by how they ended", ("result",)
)
STREAMS_CUT: Final = Series("tokenpool_router_streams_cut", "Answers that ended in an error after content")
QUARANTINED: Final = Series(
    "tokenpool_router_quarantined", "Requests not tried again, since two shards were lost over them"
)
REFUSED: Final = Series("tokenpool_router_refused", "Requests that the router itself refused", ("reason",))
CANCELLED: Final = Series("tokenpool_router_cancelled", "Requests whose client went away")
ARRIVED_PROMPT: Final = Series(
    "tokenpool_router_arrived_prompt_tokens", "Prompt tokens that clients asked for, estimated"
)
ARRIVED_ANSWER: Final = Series(
    "tokenpool_router_arrived_answer_tokens", "Answer tokens that clients asked for, estimated"
)
PROMPT_TOKENS: Final = Series("tokenpool_router_prompt_tokens", "Prompt tokens as the shards counted them")
COMPLETION_TOKENS: Final = Series("tokenpool_router_completion_tokens", "Answer tokens that were passed on")
CALLER_REQUESTS: Final = Series("tokenpool_router_caller_requests", "Requests by caller", ("caller",))
CALLER_TOKENS: Final = Series("tokenpool_router_caller_tokens", "Prompt and answer tokens by caller", ("caller",))
REVISION_REQUESTS: Final = Series(
    "tokenpool_router_revision_requests", "Answers by revision of the shard", ("revision",)
)
REVISION_ERRORS: Final = Series(
    "tokenpool_router_revision_errors", "Failed attempts by revision of the shard", ("revision",)
)
TTFT: Final = Series(
    "tokenpool_router_time_to_first_token_seconds",
    "From the whole request to the first byte of the answer, by revision of the shard",
    ("revision",),
    FAST_SECONDS,
)
QUEUE_SECONDS: Final = Series("tokenpool_router_queue_seconds", "Waiting for a shard", (), FAST_SECONDS)
SECONDS: Final = Series(
    "tokenpool_router_request_seconds", "From the whole request to the end of its answer", (), LONG_SECONDS
)

ALL: Final = (
    REQUESTS,
    RETRIES,
    CONTINUATIONS,
    STREAMS_CUT,
    QUARANTINED,
    REFUSED,
    CANCELLED,
    ARRIVED_PROMPT,
    ARRIVED_ANSWER,
    PROMPT_TOKENS,
    COMPLETION_TOKENS,
    CALLER_REQUESTS,
    CALLER_TOKENS,
    REVISION_REQUESTS,
    REVISION_ERRORS,
    TTFT,
    QUEUE_SECONDS,
    SECONDS,
)
BY_NAME: Final = {series.name: series for series in ALL}
