"""The body of `/load`: what one router has under way, and how it went lately. Imported when somebody asks."""

from tokenpool_api.wire import RevisionLoad, RouterLoad, RouterShardLoad
from tokenpool_router import series
from tokenpool_router.control.line import Message
from tokenpool_router.control.state import Control
from tokenpool_router.sharding import Shard


async def router_load(control: Control, now: float) -> RouterLoad:
    """From reports that are fresh; of a worker that does not answer now, from its last one.

    The operator ends shards that have nothing left, so a worker that hangs must not look like one that has nothing.
    """
    await control.supervisor.gather()
    recent = control.recent
    recent.add(control.totals.sums(), now)
    serving = control.supervisor.serving()
    reports = [worker.report for worker in serving if worker.report]
    return RouterLoad(
        queued_requests=sum(report["queued_requests"] for report in reports),
        queued_tokens=sum(report["queued_tokens"] for report in reports),
        shards=tuple(_shard_load(shard, reports) for shard in control.shards),
        workers=len(serving),
        # Of one that has never reported nothing is known.
        roster_generation=min(
            (worker.report["roster_generation"] if worker.report else 0 for worker in serving), default=0
        ),
        arriving_prompt_tokens_per_second=recent.per_second(series.ARRIVED_PROMPT),
        arriving_answer_tokens_per_second=recent.per_second(series.ARRIVED_ANSWER),
        drain_tokens_per_second=sum(report["drain_tokens_per_second"] for report in reports),
        revisions={
            revision: RevisionLoad(
                requests=found.requests,
                errors=found.errors,
                ttft_p50_seconds=found.ttft_p50_seconds,
                ttft_p99_seconds=found.ttft_p99_seconds,
            )
            for revision, found in recent.revisions().items()
        },
    )


def _shard_load(shard: Shard, reports: list[Message]) -> RouterShardLoad:
    found = [report["shards"][shard.id] for report in reports if shard.id in report["shards"]]
    return RouterShardLoad(
        name=shard.id,
        address=shard.address,
        outstanding_tokens=sum(one["outstanding_tokens"] for one in found),
        in_flight_requests=sum(one["in_flight_requests"] for one in found),
        ejected=bool(found) and all(one["ejected"] for one in found),
        weight=shard.weight,
        draining=shard.draining,
    )
