"""One request from its arrival to its end: a chain of callbacks, without a task of its own.

Nothing sent: another shard may take over. Content sent: another shard goes on token by token where the request allows
it, else the stream ends in an explicit error. Never a second answer, never a silent cut.
"""

import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tokenpool_api import names
from tokenpool_router.callers import Caller
from tokenpool_router.http.messages import ResponseHead
from tokenpool_router.http.refusals import (
    INTERNAL,
    QUARANTINED,
    ROUTER_STOPS,
    SHARD_LOST,
    SHARD_SILENT,
    TOO_LONG,
    Refusal,
)
from tokenpool_router.http.responder import Responder
from tokenpool_router.journey.attempt import Attempt
from tokenpool_router.journey.caution import FATAL
from tokenpool_router.journey.continuation import rest_of
from tokenpool_router.journey.facts import NO_FACTS
from tokenpool_router.journey.trace import Trace
from tokenpool_router.journey.transfer import BUSY, Transfer
from tokenpool_router.sharding import Lease, Shard

if TYPE_CHECKING:
    from tokenpool_router.journey.desk import Desk

log = logging.getLogger(__name__)

# Shards tried after the first one. More would let one poisonous request visit the whole pool.
MAX_RETRIES: Final = 2
# A shard that said 429 is asked again after this at the latest; it may have room long before the time that it names.
LONGEST_BUSY_SECONDS: Final = 1.0
TOKEN_IDS_LINE: Final = b"%b: 1\r\n" % names.HEADER_TOKEN_IDS.encode()
CLIENT_LINES: Final = b"x-request-id: %%b\r\n%b: %%b\r\n" % names.HEADER_SHARD.encode()
CLIENT_LEFT: Final = 499
NOBODY: Final[frozenset[str]] = frozenset()


class Outcome(StrEnum):
    """What became of a request."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """By the router itself, before any content."""
    CUT = "cut"
    """Content went out, then an error."""
    CANCELLED = "cancelled"
    """The client left."""


class Journey:
    """A request under way. The door fills in what is known of it, the desk gives it a shard or a place to wait."""

    __slots__ = (
        "_attempt",
        "_desk",
        "_losses",
        "_paused",
        "_retries_left",
        "_spare",
        "_transfer",
        "answer_tokens",
        "attempts",
        "began",
        "caller",
        "facts",
        "first_at",
        "is_admitted",
        "leased_at",
        "outcome",
        "place",
        "prefix",
        "prompt_tokens",
        "refusal",
        "request",
        "responder",
        "shard",
        "status",
        "trace",
        "tried",
        "wait_until",
    )

    def __init__(self, desk: "Desk", responder: Responder, now: float) -> None:
        self._desk, self.responder, self.request = desk, responder, responder.request
        self.began, self.leased_at, self.first_at = now, 0.0, 0.0
        self.facts = NO_FACTS
        self.caller: Caller | None = None
        self.is_admitted = False
        """The door let it in, so its caller's quota is to be settled at the end."""
        self.prompt_tokens = self.answer_tokens = 0
        """Estimates."""
        self.prefix: tuple[int, ...] = ()
        self.trace: Trace | None = None
        self.tried = NOBODY
        """Shards that failed it."""
        self.attempts = 0
        self.shard: Shard | None = None
        """The last one that had it."""
        self.outcome: Outcome | None = None
        """None while it is under way."""
        self.status = 0
        self.refusal: Refusal | None = None
        self.place: object | None = None
        """Where it waits for a shard, if it does; the desk's."""
        self.wait_until = 0.0
        self._losses = 0
        self._retries_left = MAX_RETRIES
        self._paused = False
        self._attempt: Attempt | None = None
        self._transfer: Transfer | None = None
        self._spare: Transfer | None = None
        """A shard's whole refusal, not passed on in the hope of better."""

    @property
    def tokens(self) -> int:
        """What it weighs on a shard, and in the queue."""
        return self.prompt_tokens + self.answer_tokens

    @property
    def told_prompt_tokens(self) -> int:
        """As the shard counted them, 0 if none did."""
        return self._transfer.prompt_tokens if self._transfer else 0

    @property
    def passed_tokens(self) -> int:
        """Answer tokens that the client got."""
        return self._transfer.tokens if self._transfer else 0

    @property
    def is_rest(self) -> bool:
        """A lost shard's stream was gone on with."""
        return self._transfer is not None and self._transfer.is_rest

    @property
    def token_ids(self) -> bytes:
        """Ids of the answer so far, as "1,2,3", where they are known."""
        return self._transfer.ids if self._transfer else b""

    def begin(self) -> "Journey | None":
        """Set out. None when the answer was given at once."""
        try:
            self._desk.arrived(self)
            answer = self._desk.door.admit(self, self.began)
            self._desk.ledger.arrived(self)
            if isinstance(answer, Refusal):
                self._give_up(answer)
            elif answer:
                self._conclude(Outcome.ANSWERED, answer.head.status)
                self.responder.start(answer.head)
                self.responder.finish(answer.body)
            else:
                self._seek()
        except Exception:
            self.on_bug()
        return self if self.outcome is None else None

    def _seek(self) -> None:
        """Get a shard, now or later."""
        found = self._desk.seek(self)
        if isinstance(found, Lease):
            self.leased(found)
        elif found:
            self._give_up(found)

    def leased(self, lease: Lease) -> None:
        """A shard has room."""
        now = self._desk.now()
        if not self.attempts:
            self.leased_at = now
        self.attempts += 1
        shard = self.shard = lease.shard
        if not self.responder.started:
            more = CLIENT_LINES % (self.request.request_id, shard.id.encode())
            self._transfer = Transfer(self.responder, more, keeps_ids=self.facts.can_continue)
        self._attempt = Attempt(self, lease, self._desk.pool)
        self._attempt.start(self._request_to(shard), now, head_only=self.request.method == b"HEAD", paused=self._paused)

    def _request_to(self, shard: Shard) -> bytes:
        more = TOKEN_IDS_LINE if self.facts.is_stream and not self.facts.returns_ids else b""
        if self.trace:
            more += self.trace.line
        body = None
        if self.responder.started and self._transfer:
            body = rest_of(self.request.body, self._transfer.ids, self._transfer.seed)
        # The key is the router's to know, where the router knows keys.
        without = b"authorization" if self.caller else b""
        return self.request.to_upstream(shard.address.encode(), more, body=body, without=without)

    # --- the attempt's calls ---------------------------------------------------------------------------------------
    def on_head(self, head: ResponseHead) -> None:
        """The answer begins, so the prompt is computed."""
        if self._transfer is None or self._attempt is None:
            return
        self._transfer.on_head(head)
        if head.status not in BUSY:
            self._attempt.lease.correct(self.answer_tokens)
            if not self.first_at:
                self.first_at = self._desk.now()
                self._desk.ledger.answer_began(self)

    def on_answer(self, data: bytes, ended: bool) -> None:
        """A part of the answer."""
        transfer, attempt = self._transfer, self._attempt
        if transfer is None or attempt is None or transfer.head is None:
            return
        if transfer.is_rest and transfer.head.status != 200:
            # Instead of the rest of a stream, a refusal.
            if ended:
                self._attempt = None
                self._refused_by_shard(transfer.head)
            return
        data, tokens = transfer.take(data)
        if not ended:
            if tokens:
                attempt.lease.progress(tokens)
            transfer.send(data)
            return
        self._attempt = None
        if transfer.head.status in BUSY and not self.responder.started:
            self._spare = transfer
            self._refused_by_shard(transfer.head)
            return
        self._desk.sharding.succeeded(attempt.lease.shard.id)
        self._conclude(Outcome.ANSWERED, transfer.head.status)
        transfer.finish(data)

    def on_unreachable(self) -> None:
        """No connection to the shard."""
        self._attempt = None
        self._retry()

    def on_lost(self) -> None:
        """The shard is gone in the middle of it."""
        self._attempt = None
        self._losses += 1
        if self._losses >= FATAL:
            self._desk.door.quarantine.add(self.request.body, self._desk.now())
            self._leave_shard()
            self._give_up(QUARANTINED)
        elif not self.responder.started:
            self._retry()
        elif self._transfer and self._transfer.can_go_on:
            self._transfer.go_on()
            self._retry()
        else:
            self._leave_shard()
            self._give_up(SHARD_LOST)

    def _refused_by_shard(self, head: ResponseHead) -> None:
        if head.status == 429 and self.shard:
            # It is well, but full. It may be the first to have room again.
            told = head.fields.get(b"retry-after", b"")
            seconds = min(int(told), LONGEST_BUSY_SECONDS) if told.isdigit() else LONGEST_BUSY_SECONDS
            self._desk.sharding.busy(self.shard.id, until=self._desk.now() + seconds)
            self._seek()
        elif head.status == 503:
            # Who refuses is idle, so everybody would be sent there first.
            self._retry()
        else:
            self._leave_shard()
            self._give_up(SHARD_LOST)

    def _leave_shard(self) -> None:
        """That shard did not do it: let others be careful with it too."""
        if self.shard:
            self._desk.sharding.failed(self.shard.id, now=self._desk.now())
            self._desk.ledger.shard_failed(self.shard)
            self.tried |= {self.shard.id}

    def _retry(self) -> None:
        self._leave_shard()
        if self._retries_left <= 0 or not self._desk.budget.spend():
            self._give_up(SHARD_LOST)
            return
        self._retries_left -= 1
        self._desk.ledger.retried()
        self._seek()

    # --- the connection's calls ------------------------------------------------------------------------------------
    def client_gone(self) -> None:
        """Nobody wants the answer any more: the shard is told at once."""
        if self.outcome is None:
            self._stop()
            self._conclude(Outcome.CANCELLED, CLIENT_LEFT)

    def cut(self) -> None:
        """The router stops."""
        if self.outcome is None:
            self._stop()
            self._spare = None
            self._give_up(ROUTER_STOPS)

    def pause(self, paused: bool) -> None:
        """The client is slow to read (True) or caught up (False)."""
        self._paused = paused
        if self._attempt:
            self._attempt.pause(paused)

    # --- deadlines -------------------------------------------------------------------------------------------------
    def sweep(self, now: float) -> None:
        """End what took too long."""
        limits = self._desk.deadlines
        if now - self.began >= limits.total_seconds:
            self._stop()
            self._give_up(TOO_LONG)
        elif self.place is not None:
            if now >= self.wait_until:
                self._stop()
                self._give_up(self._desk.waited_in_vain())
        elif self._attempt:
            has_head = self._transfer is not None and self._transfer.head is not None
            limit = limits.stall_seconds if has_head else limits.first_byte_seconds
            if self._attempt.silence(now) >= limit:
                # No second try: the next shard would most likely take as long, and the client waited long enough.
                self._stop()
                self._leave_shard()
                self._give_up(SHARD_SILENT)

    # --- ends ------------------------------------------------------------------------------------------------------
    def _stop(self) -> None:
        self._desk.leave(self)
        attempt, self._attempt = self._attempt, None
        if attempt:
            attempt.stop()

    def _give_up(self, refusal: Refusal) -> None:
        """No more of this answer will come: tell the client in the form that is still possible."""
        self.refusal = refusal
        if self.responder.started and self._transfer:
            self._conclude(Outcome.CUT, self.responder.status)
            self._transfer.break_off(refusal)
        elif self._spare and self._spare.head:
            self._conclude(Outcome.ANSWERED, self._spare.head.status)
            self._spare.finish(b"")
        else:
            self._conclude(Outcome.REFUSED, refusal.status)
            self.responder.refuse(refusal)

    def _conclude(self, outcome: Outcome, status: int) -> None:
        """Before the last bytes go out: with them the connection's next request may begin."""
        self.outcome, self.status = outcome, status
        self._desk.concluded(self)

    def on_bug(self) -> None:
        """A call of ours raised: say so once, in the log and to the client."""
        log.exception("a request failed inside the router")
        self._stop()
        self.responder.close = True
        if self.outcome is None:
            self._conclude(Outcome.REFUSED, INTERNAL.status)
        if self.responder.started:
            self.responder.abort()
        else:
            self.responder.refuse(INTERNAL)
