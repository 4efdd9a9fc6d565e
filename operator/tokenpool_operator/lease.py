"""Which of several replicas works: the one that holds a coordination Lease. A task of our own, not kopf's peering.

Another's lease is judged by our own clock only: it is dead when it has not changed for its whole duration. Our own is
good until a deadline that ends before anybody else may take it; past it nothing is written and the process ends.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from tokenpool_kube import ClusterError, kinds
from tokenpool_kube.kinds import Kind

Raw = dict[str, Any]
log = logging.getLogger(__name__)

LEASE_NAME: Final = "tokenpool-operator"


class LeaseServer(Protocol):
    """What is used of `tokenpool_kube.Cluster`."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Raw | None:
        """One object, or None."""

    async def create(self, kind: Kind, namespace: str | None, body: Raw) -> Raw:
        """Create."""

    async def replace(self, kind: Kind, namespace: str | None, name: str, body: Raw) -> Raw:
        """Replace, if the resourceVersion still holds."""


@dataclass(frozen=True)
class Seen:
    """A lease as it was, and since when by our clock it has been so."""

    version: str
    since: float


class Leadership:
    """One replica's claim. `clock` is monotonic; `wall` is only for people who read the Lease."""

    def __init__(
        self,
        api: LeaseServer,
        *,
        namespace: str,
        identity: str,
        seconds: float,
        clock: Callable[[], float],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._seconds = seconds
        self._clock = clock
        self._wall = wall
        self._good_until = float("-inf")
        self._seen: Seen | None = None

    @property
    def renew_seconds(self) -> float:
        """Pause between two tries."""
        return self._seconds / 5

    def is_held(self) -> bool:
        """Whether we may write now."""
        return self._clock() < self._good_until

    async def acquire(self) -> None:
        """Stand by until the lease is ours."""
        await self._try_to_hold()
        while not self.is_held():
            await asyncio.sleep(self.renew_seconds)
            await self._try_to_hold()
        log.info("%s leads", self._identity)

    async def hold(self) -> None:
        """Renew for ever; returns when the lease is lost."""
        while self.is_held():
            await asyncio.sleep(self.renew_seconds)
            await self._try_to_hold()
        log.error("%s lost the lease", self._identity)

    async def release(self) -> None:
        """Let the next replica start at once. Call when nothing writes any more."""
        if not self.is_held():
            return
        self._good_until = float("-inf")
        lease = await self._api.get(kinds.LEASE, self._namespace, LEASE_NAME)
        if lease and lease["spec"].get("holderIdentity") == self._identity:
            await self._replace(lease, holder="")

    async def _try_to_hold(self) -> None:
        """One GET and, if the lease is ours or free, one PUT. Errors leave the claim to run out by itself."""
        started = self._clock()
        # A request that hangs longer than the lease lasts is of no use.
        try:
            async with asyncio.timeout(self.renew_seconds * 2):
                held = await self._claim()
        except (ClusterError, TimeoutError) as error:
            # A conflict too: who wrote in between shows in the next GET.
            log.warning("the lease was not renewed: %s", error or "no answer in time")
            return
        # Counted from before the request: the server's clock for our lease cannot have started earlier.
        self._good_until = started + self._seconds * 2 / 3 if held else float("-inf")

    async def _claim(self) -> bool:
        lease = await self._api.get(kinds.LEASE, self._namespace, LEASE_NAME)
        if lease is None:
            await self._api.create(kinds.LEASE, self._namespace, self._body({}, self._identity))
            return True
        holder = lease["spec"].get("holderIdentity") or ""
        if holder in ("", self._identity) or self._is_dead(lease):
            await self._replace(lease, self._identity)
            return True
        return False

    def _is_dead(self, lease: Raw) -> bool:
        version, now = lease["metadata"]["resourceVersion"], self._clock()
        if self._seen is None or self._seen.version != version:
            self._seen = Seen(version, now)
        return now - self._seen.since > float(lease["spec"].get("leaseDurationSeconds") or self._seconds)

    async def _replace(self, lease: Raw, holder: str) -> None:
        """Carries the resourceVersion that was read, so of two claims one fails."""
        await self._api.replace(kinds.LEASE, self._namespace, LEASE_NAME, self._body(lease, holder))

    def _body(self, lease: Raw, holder: str) -> Raw:
        now = self._wall().astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        spec = lease.get("spec", {})
        changes = spec.get("leaseTransitions", 0) + (spec.get("holderIdentity", "") != holder and bool(lease))
        acquired = spec.get("acquireTime") if spec.get("holderIdentity") == holder else now
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": lease.get("metadata", {"name": LEASE_NAME, "namespace": self._namespace}),
            "spec": {
                "holderIdentity": holder,
                # An integer field: the API knows no fractions, and others wait at least as long as we count.
                "leaseDurationSeconds": max(1, -(-int(self._seconds * 1000) // 1000)),
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": changes,
            },
        }
