"""Who gets in: browsers' questions, keys, quotas, quarantine, and what a request will cost."""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import orjson

from tokenpool_router.callers import Callers
from tokenpool_router.http.cors import Cors
from tokenpool_router.http.messages import ResponseHead
from tokenpool_router.http.refusals import NO_KEY, QUARANTINED, WRONG_KEY, Refusal
from tokenpool_router.journey.caution import Quarantine
from tokenpool_router.journey.facts import Models, read_facts
from tokenpool_router.journey.prefix import prefix_of
from tokenpool_router.journey.trace import trace_of

if TYPE_CHECKING:
    from tokenpool_router.journey.journey import Journey

PATH_MODELS: Final = b"/v1/models"


@dataclass(frozen=True)
class Reply:
    """An answer that needs no shard."""

    head: ResponseHead
    body: bytes = b""


class Door:
    """Looks at each request once, before any work is done for it."""

    def __init__(self, served_name: str, cors: Cors, random: Random, *, traces: bool, uses_prefixes: bool) -> None:
        self.callers: Callers | None = None
        """None: the door is open to everybody."""
        self.models = Models()
        self.quarantine = Quarantine()
        self._cors, self._random = cors, random
        self._traces, self._uses_prefixes = traces, uses_prefixes
        self._models_reply = _models_reply(served_name) if served_name else None

    def admit(self, journey: "Journey", now: float) -> Refusal | Reply | None:
        """None lets it in, with all that is known of it filled in."""
        request = journey.request
        if self._cors:
            journey.responder.extra = self._cors.lines(request)
            preflight = self._cors.preflight(request)
            if preflight:
                return Reply(preflight)
        if self._traces:
            journey.trace = trace_of(request.fields.get(b"traceparent"), self._random)
        if self.callers is not None:
            authorization = request.fields.get(b"authorization")
            journey.caller = self.callers.find(authorization)
            if journey.caller is None:
                return WRONG_KEY if authorization else NO_KEY
        if self._models_reply and request.method == b"GET" and request.path == PATH_MODELS:
            return self._models_reply
        if request.body:
            self._weigh(journey)
        if self.quarantine.holds(request.body, now):
            return QUARANTINED
        return self._within_quota(journey, now)

    def _weigh(self, journey: "Journey") -> None:
        facts = journey.facts = read_facts(journey.request.body)
        learned = self.models.of(facts.model)
        journey.prompt_tokens = learned.prompt_tokens(facts)
        journey.answer_tokens = learned.expected_answer_tokens(facts)
        if self._uses_prefixes:
            journey.prefix = prefix_of(journey.request.body)

    def _within_quota(self, journey: "Journey", now: float) -> Refusal | None:
        caller = journey.caller
        refusal = self.callers.begin(caller, journey.tokens, now) if caller and self.callers else None
        journey.is_admitted = refusal is None
        return refusal


def _models_reply(name: str) -> Reply:
    model = {"id": name, "object": "model", "created": 0, "owned_by": "tokenpool"}
    body = orjson.dumps({"object": "list", "data": [model]})
    return Reply(ResponseHead(200, b"", ((b"content-type", b"application/json"),), len(body)), body)
