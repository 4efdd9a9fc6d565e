"""One request's way to a shard and back: lease, send, pass on, retry while nothing has reached the client.

Once content went out a lost shard means an explicit error event, never a second answer and never a silent cut.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from tokenpool_api import names
from tokenpool_router.admission import Refused, WaitingRoom
from tokenpool_router.balancer import Balancer, Lease, Member
from tokenpool_router.errors import ROUTER_STOPS, SHARD_LOST, SHARD_SILENT, Refusal
from tokenpool_router.estimate import estimate_tokens
from tokenpool_router.messages import Request
from tokenpool_router.metrics import Metrics
from tokenpool_router.responder import Responder
from tokenpool_router.transfer import Transfer
from tokenpool_router.upstream import Pool, UpstreamConnection, UpstreamLost

# Shards tried after the first one. More would let one poisonous request visit the whole pool.
MAX_RETRIES: Final = 2


@dataclass(frozen=True)
class Deadlines:
    """How long a shard may take, in seconds."""

    first_byte_seconds: float = 600.0
    stall_seconds: float = 300.0


class Outcome(Enum):
    """How one attempt ended."""

    DONE = auto()
    RETRY = auto()
    """Another shard may do better, also one that is yet to come."""
    BUSY = auto()
    """The shard has too much to do; another one only if there is one now."""


@dataclass
class Journey:
    """What is known of a request across its attempts."""

    request: Request
    responder: Responder
    tokens: int
    tried: set[Member] = field(default_factory=set)
    transfer: Transfer | None = None
    """The present attempt's answer."""
    held: Transfer | None = None
    """A whole answer that was not passed on, in the hope of a better one."""
    refusal: Refusal = SHARD_LOST


class Forwarder:
    """Carries requests. Owns nothing but counts."""

    def __init__(
        self, balancer: Balancer, room: WaitingRoom, pool: Pool, metrics: Metrics, deadlines: Deadlines
    ) -> None:
        self._balancer, self._room, self._pool = balancer, room, pool
        self._metrics, self._deadlines = metrics, deadlines

    async def handle(self, request: Request, responder: Responder) -> None:
        """Answer one request. Cancelled when its client goes away."""
        journey = Journey(request, responder, estimate_tokens(request.body))
        code = "failed"
        try:
            await self._travel(journey)
            code = str(responder.status)
        except asyncio.CancelledError:
            code = "cancelled"
            if not responder.is_cut:
                raise
            self._break_off(journey, ROUTER_STOPS)
        finally:
            self._metrics.requests.labels(code).inc()

    async def _travel(self, journey: Journey) -> None:
        outcome = Outcome.RETRY
        for attempt in range(1 + MAX_RETRIES):
            try:
                lease = await self._lease(journey, outcome)
            except Refused as refused:
                journey.refusal = refused.refusal
                break
            if lease is None:
                break
            if attempt:
                self._metrics.retries.inc()
            try:
                outcome = await self._attempt(journey, lease)
            finally:
                lease.release()
            if outcome is Outcome.DONE:
                return
            journey.tried.add(lease.member)
        self._answer_without_shard(journey)

    async def _lease(self, journey: Journey, outcome: Outcome) -> Lease | None:
        def acquire() -> Lease | None:
            return self._balancer.acquire(journey.tokens, now=_now(), exclude=journey.tried)

        if outcome is Outcome.BUSY:
            return acquire()
        return await self._room.lease(journey.tokens, acquire, is_choosy=bool(journey.tried))

    def _answer_without_shard(self, journey: Journey) -> None:
        """No shard did it: pass on what one of them said, or say so ourselves."""
        if journey.held:
            journey.held.finish()
        else:
            journey.responder.refuse(journey.refusal)

    async def _attempt(self, journey: Journey, lease: Lease) -> Outcome:
        """Send the request to one shard. A kept-alive connection that turns out dead gets one fresh one."""
        for fresh in (False, True):
            try:
                connection = await self._pool.connect(lease.member.address, fresh=fresh)
            except OSError:
                self._balancer.failed(lease.member.name, now=_now())
                return Outcome.RETRY
            transfer = Transfer(journey.responder, lease, self._extra_headers(journey.request, lease.member))
            journey.transfer = transfer
            try:
                return await self._exchange(journey, lease, connection, transfer)
            except UpstreamLost as lost:
                if connection.used and not lost.answered:
                    continue
                return self._lost(journey, lease)
        return Outcome.RETRY

    async def _exchange(
        self, journey: Journey, lease: Lease, connection: UpstreamConnection, transfer: Transfer
    ) -> Outcome:
        journey.responder.on_pause = connection.pause
        sending = asyncio.ensure_future(
            connection.exchange(
                journey.request.to_upstream(lease.member.address),
                transfer.on_head,
                transfer.on_body,
                head_only=journey.request.method == b"HEAD",
            )
        )
        try:
            await self._watch(sending, connection, transfer)
            return self._finish(journey, lease, transfer)
        except TimeoutError:
            # No second try: the next shard would most likely take as long, and the client waited long enough.
            self._balancer.failed(lease.member.name, now=_now())
            self._break_off(journey, SHARD_SILENT)
            return Outcome.DONE
        finally:
            # Also when the client went away: closing tells the shard to stop.
            sending.cancel()
            journey.responder.on_pause = None
            if sending.done() and not sending.cancelled() and not sending.exception():
                self._pool.give_back(lease.member.address, connection)
            else:
                connection.close()

    async def _watch(self, sending: "asyncio.Future[None]", connection: UpstreamConnection, transfer: Transfer) -> None:
        """Wait for the end of the answer. Raises TimeoutError on silence, UpstreamLost when the shard is gone."""
        while not sending.done():
            limits = self._deadlines
            limit = limits.stall_seconds if transfer.head else limits.first_byte_seconds
            silent = _now() - connection.heard_at
            if silent >= limit and not transfer.is_paused:
                raise TimeoutError
            # Nobody wakes us when the head comes, so look again soon enough for the shorter limit that holds from then.
            left = min(limit - silent, limits.stall_seconds) if silent < limit else 1.0
            await asyncio.wait({sending}, timeout=left)
        sending.result()

    def _finish(self, journey: Journey, lease: Lease, transfer: Transfer) -> Outcome:
        """The shard's answer is whole: pass it on, unless another shard may give a better one."""
        status = transfer.head.status if transfer.head else 0
        if status == 503:
            # Who refuses is idle, so everybody would be sent there first.
            self._balancer.failed(lease.member.name, now=_now())
        else:
            self._balancer.succeeded(lease.member.name)
        if not journey.responder.started and status in (429, 503):
            journey.held = transfer
            return Outcome.BUSY if status == 429 else Outcome.RETRY
        transfer.finish()
        return Outcome.DONE

    def _lost(self, journey: Journey, lease: Lease) -> Outcome:
        """The shard is gone in the middle of it."""
        self._balancer.failed(lease.member.name, now=_now())
        if not journey.responder.started:
            return Outcome.RETRY
        self._break_off(journey, SHARD_LOST)
        return Outcome.DONE

    def _break_off(self, journey: Journey, refusal: Refusal) -> None:
        """No more of this answer will come: tell the client in the form that is still possible."""
        if journey.responder.started and journey.transfer:
            self._metrics.streams_cut.inc()
            journey.transfer.break_off(refusal)
        else:
            journey.responder.refuse(refusal)

    def _extra_headers(self, request: Request, member: Member) -> tuple[tuple[bytes, bytes], ...]:
        return (
            (names.HEADER_REQUEST_ID.encode(), request.request_id),
            (names.HEADER_SHARD.encode(), member.name.encode()),
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
