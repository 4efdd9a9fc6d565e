"""One pass over one pool: observe, decide, act, report. Level-based: it does not know why its bell was rung."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tokenpool_api import names
from tokenpool_api.status import TokenPoolStatus
from tokenpool_kube import AlreadyExists, ClusterError, Forbidden
from tokenpool_operator import decide, observe, report, trouble
from tokenpool_operator.cluster import Door, PoolKey
from tokenpool_operator.conditions import Facts
from tokenpool_operator.manifests.event import pool_event
from tokenpool_operator.manifests.metadata import Owner, selector_text
from tokenpool_operator.observe import Observed
from tokenpool_operator.perform import perform_all, refusal
from tokenpool_operator.settings import Settings
from tokenpool_operator.trouble import Trouble
from tokenpool_operator.utilization import PoolLoad

Raw = dict[str, Any]
log = logging.getLogger(__name__)

# What the cluster refused is tried again without an event: nobody tells us of a new right or a freed name.
REFUSED_AGAIN_SECONDS = 15.0
# A pod that has not begun after so long may lack a volume: its kubelet says so in an event, and nobody tells us of it.
LATE_SECONDS = 5.0
LATE_AGAIN_SECONDS = 10.0


class Loads(Protocol):
    """Where the pool's numbers come from."""

    def track(self, key: PoolKey, addresses: tuple[str, ...]) -> PoolLoad:
        """Say which shards are ready; get what is known of their load."""

    def forget(self, key: PoolKey) -> None:
        """The pool is gone."""


@dataclass(frozen=True)
class Outcome:
    """How a pass ended: the pool is gone, or when to look again without an event."""

    gone: bool = False
    again_seconds: float | None = None


class Reconciler:
    """Runs passes. `clock` gives seconds since the epoch."""

    def __init__(self, door: Door, settings: Settings, loads: Loads, clock: Callable[[], float]) -> None:
        self._door = door
        self._settings = settings
        self._loads = loads
        self._clock = clock

    async def run_pass(self, key: PoolKey) -> Outcome:
        """One pass. Raises ClusterError when the API server does not let it finish; then call again later."""
        pool = await self._door.pool(key)
        if pool is None or pool["metadata"].get("deletionTimestamp"):
            # The garbage collector takes the children; there is nothing to tidy up.
            self._loads.forget(key)
            return Outcome(gone=True)
        observed = await self._observe(key, pool)
        load = self._loads.track(key, observed.ready_addresses())
        facts, again_seconds = await self._act(pool, observed, load)
        await self._report(pool, facts)
        return Outcome(again_seconds=again_seconds)

    async def _observe(self, key: PoolKey, pool: Raw) -> Observed:
        try:
            pods, others = await self._door.children(key)
        except Forbidden as error:
            await self._report_blindness(pool, refusal(error))
            raise
        return observe.observe(pool["metadata"]["uid"], pods, others, await self._mount_failures(key, pods))

    async def _mount_failures(self, key: PoolKey, pods: list[Raw]) -> dict[str, str]:
        """Asked for only while a pod does not begin."""
        if not any(self._is_late(pod) for pod in pods):
            return {}
        try:
            return await self._door.mount_failures(key[0])
        except ClusterError as error:
            log.warning("%s/%s: the events of its pods cannot be read: %s", *key, error)
            return {}

    def _is_late(self, pod: Raw) -> bool:
        return trouble.is_preparing(pod) and self._clock() - observe.created_at(pod) >= LATE_SECONDS

    async def _act(self, pool: Raw, observed: Observed, load: PoolLoad) -> tuple[Facts, float | None]:
        owner, generation = _owner(pool), pool["metadata"]["generation"]
        selector = selector_text(owner.name, names.COMPONENT_SHARD)
        spec = decide.read_spec(pool)
        if isinstance(spec, Trouble):
            goal = report.last_goal(report.read_status(pool))
            return Facts(generation, selector, goal, observed, load, refused=spec), None
        plan = decide.decide(owner, spec, observed, self._settings, self._clock())
        for action in plan.actions:
            log.info("%s/%s: %s", owner.namespace, owner.name, action)
        problems = await perform_all(self._door, owner, plan.actions)
        waits = [
            plan.again_seconds,
            REFUSED_AGAIN_SECONDS if problems else None,
            LATE_AGAIN_SECONDS if observed.is_preparing else None,
        ]
        again_seconds = min((wait for wait in waits if wait is not None), default=None)
        return Facts(generation, selector, plan.goal, observed, load, spec.paused, problems=problems), again_seconds

    async def _report(self, pool: Raw, facts: Facts) -> None:
        previous = report.read_status(pool)
        current = report.report(facts, previous, self._now("seconds"))
        body = report.as_json(current)
        if body == pool.get("status"):
            return
        await self._door.write_status(pool | {"status": body})
        await self._tell(pool, previous, current)

    async def _report_blindness(self, pool: Raw, trouble: Trouble) -> None:
        """Without a picture of the children only the reason is news; the rest of the status stays as it was."""
        previous = report.read_status(pool)
        goal = report.last_goal(previous)
        facts = Facts(pool["metadata"]["generation"], previous.selector, goal, Observed(), problems=(trouble,))
        conditions = report.report(facts, previous, self._now("seconds")).conditions
        current = previous.model_copy(update={"conditions": conditions})
        body = report.as_json(current)
        if body != pool.get("status"):
            await self._door.write_status(pool | {"status": body})
            await self._tell(pool, previous, current)

    async def _tell(self, pool: Raw, previous: TokenPoolStatus, current: TokenPoolStatus) -> None:
        owner, generation = _owner(pool), pool["metadata"]["generation"]
        for item in report.announcements(previous, current):
            reporter, now = self._settings.pod_name, self._now("microseconds")
            event = pool_event(
                owner, generation, type_=item.type, reason=item.reason, note=item.note, reporter=reporter, now=now
            )
            try:
                await self._door.tell(event)
            except AlreadyExists:
                continue
            except ClusterError as error:
                # The status already says it; an event is a courtesy and no reason to repeat the pass.
                log.warning("%s/%s: event %s was not taken: %s", owner.namespace, owner.name, item.reason, error)

    def _now(self, precision: str) -> str:
        moment = datetime.fromtimestamp(self._clock(), UTC).replace(tzinfo=None)
        return moment.isoformat(timespec=precision) + "Z"


def _owner(pool: Raw) -> Owner:
    meta = pool["metadata"]
    return Owner(meta["name"], meta["namespace"], meta["uid"])
