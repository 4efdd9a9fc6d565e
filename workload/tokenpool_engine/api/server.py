"""The OpenAI API of one shard over HTTP. It carries; admission decides, the engine computes."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from tokenpool_api import names
from tokenpool_engine.api.admission import Admitted, Choice, admit, check_queue
from tokenpool_engine.api.answer import Answer
from tokenpool_engine.api.errors import ApiError, bug
from tokenpool_engine.api.logprobs import TokenTexts
from tokenpool_engine.api.openai import ChatRequest, CompletionRequest, parse
from tokenpool_engine.api.replies import ChoiceReply, Reply
from tokenpool_engine.api.sending import STARTED, send_stream, send_whole
from tokenpool_engine.api.structured import read_grammar
from tokenpool_engine.api.tokens import detokenize, tokenize
from tokenpool_engine.grammar import Grammars
from tokenpool_engine.request import Finish
from tokenpool_engine.shard import Parts, Shard
from tokenpool_engine.stream import Stream, Update

log = logging.getLogger(__name__)

BODY_BYTES = 8 << 20
PLAIN_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """Handlers over one shard. `open_streams` are the requests that run, for the drain."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.open_streams: set[Stream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._grammars: Grammars | None = None
        self._texts: TokenTexts | None = None

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[answer_in_openai_form])
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/models/{name:.+}", self.model)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/detokenize", self.detokenize)
        app.on_cleanup.append(self._clean_up)
        return app

    async def models(self, _request: web.Request) -> web.StreamResponse:
        """GET /v1/models."""
        return web.json_response({"object": "list", "data": [self._model_entry()]})

    async def model(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models/NAME."""
        self._check_model(request.match_info["name"])
        return web.json_response(self._model_entry())

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._generate(request, parse(ChatRequest, await request.read()))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._generate(request, parse(CompletionRequest, await request.read()))

    async def tokenize(self, request: web.Request) -> web.StreamResponse:
        """POST /tokenize."""
        raw, parts = await request.read(), self._ready_parts()
        return web.json_response(await asyncio.to_thread(tokenize, raw, parts))

    async def detokenize(self, request: web.Request) -> web.StreamResponse:
        """POST /detokenize."""
        raw, parts = await request.read(), self._ready_parts()
        return web.json_response(await asyncio.to_thread(detokenize, raw, parts))

    async def _generate(self, http: web.Request, body: ChatRequest | CompletionRequest) -> web.StreamResponse:
        parts = self._ready_parts()
        self._check_model(body.model)
        identity = f"{'chatcmpl' if isinstance(body, ChatRequest) else 'cmpl'}-{uuid.uuid4().hex}"
        grammar = await read_grammar(body, self._grammars_of(parts))
        admitted = await asyncio.to_thread(admit, body, parts, identity, grammar)
        self._ready_parts()  # a drain that began meanwhile does not wait for this one
        check_queue(parts, admitted.tokens, parts.metrics.work_per_second)
        reply = self._reply(http, answer_id(http, identity), body, admitted, parts)
        choices = [
            ChoiceReply(reply, index, choice.request.prompt, choice.echo, continued=bool(choice.request.output))
            for index, choice in enumerate(admitted.choices)
        ]
        answers: list[Answer] = []
        try:
            for index, choice in enumerate(admitted.choices):
                answers.append(Answer(index, self._open(parts, choice), choice.detokenizer))
            if body.stream:
                return await send_stream(http, reply, answers, choices)
            return await send_whole(reply, answers, choices)
        finally:
            # Also when the client went away: the slots are free before the next step.
            self._close(parts, answers)

    def _reply(
        self,
        http: web.Request,
        identity: str,
        body: ChatRequest | CompletionRequest,
        admitted: Admitted,
        parts: Parts,
    ) -> Reply:
        if self._texts is None:
            self._texts = TokenTexts(parts.tokenizer)
        return Reply(
            identity,
            int(time.time()),
            body.model,
            isinstance(body, ChatRequest),
            admitted.prompt_tokens,
            body.includes_usage,
            bool(body.return_token_ids),
            None if body.wanted_logprobs is None else self._texts,
            admitted.choices[0].request.sampling.seed,
            names.HEADER_TOKEN_IDS in http.headers,
        )

    def _ready_parts(self) -> Parts:
        parts, reason = self._shard.parts, self._shard.not_ready
        if parts is None or reason:
            raise ApiError(503, f"this shard takes no requests: {reason}", code="shard_not_ready", retry_after=1)
        return parts

    def _check_model(self, name: str) -> None:
        if name != self._shard.served_name:
            message = f"the model {name!r} does not exist; this pool serves {self._shard.served_name!r}"
            raise ApiError(404, message, code="model_not_found", param="model")

    def _model_entry(self) -> dict[str, str | int]:
        return {"id": self._shard.served_name, "object": "model", "created": 0, "owned_by": "tokenpool"}

    def _grammars_of(self, parts: Parts) -> Grammars:
        if self._grammars is None:
            self._grammars = Grammars(parts.tokenizer, parts.vocabulary, parts.stop_ids)
        return self._grammars

    def _open(self, parts: Parts, choice: Choice) -> Stream:
        stream = ended_already(choice) or parts.engine.submit(choice.request)
        self.open_streams.add(stream)
        self._idle.clear()
        return stream

    def _close(self, parts: Parts, answers: Sequence[Answer]) -> None:
        for answer in answers:
            parts.engine.cancel(answer.stream)
            self.open_streams.discard(answer.stream)
            parts.metrics.observe_end(answer.stream)
        if not self.open_streams:
            self._idle.set()

    async def _clean_up(self, _app: web.Application) -> None:
        if self._grammars:
            self._grammars.close()

    async def wait_idle(self, seconds: float) -> bool:
        """Wait until no request runs; False when that took too long."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def cut(self, parts: Parts, error: str) -> None:
        """End what still runs with an explicit error."""
        for stream in tuple(self.open_streams):
            stream.updates.put_nowait(Update(finish=Finish.ERROR, error=error))
            parts.engine.cancel(stream)


def answer_id(http: web.Request, identity: str) -> str:
    """The id in the body. It follows the request's id, so that an answer which goes on elsewhere keeps it."""
    given = http.headers.get(names.HEADER_REQUEST_ID, "")
    return f"{identity.partition('-')[0]}-{given}" if PLAIN_ID.fullmatch(given) else identity


def ended_already(choice: Choice) -> Stream | None:
    """A stream that has ended, for an answer of which another shard gave all but the end."""
    if len(choice.request.output) < choice.request.max_tokens and not choice.detokenizer.stopped:
        return None
    stream = Stream(choice.request)
    choice.request.finish = Finish.STOP if choice.detokenizer.stopped else Finish.LENGTH
    stream.updates.put_nowait(Update(finish=choice.request.finish))
    return stream


@web.middleware
async def answer_in_openai_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal gets the error envelope and the request's id; nothing leaks a traceback."""
    try:
        response = await handler(request)
    except ApiError as error:
        response = refusal(error)
    except web.HTTPRequestEntityTooLarge:
        response = refusal(ApiError(413, f"the body is larger than {BODY_BYTES} bytes", code="body_too_large"))
    except web.HTTPException as error:
        response = refusal(ApiError(error.status, f"{error.reason}: {request.method} {request.path}", code="not_found"))
    except Exception:
        if STARTED in request:
            raise  # no second answer inside the first: the connection breaks off, which no client takes for an end
        log.exception("a bug in %s %s", request.method, request.path)
        response = refusal(bug())
    if not response.prepared:
        response.headers[names.HEADER_REQUEST_ID] = request.headers.get(names.HEADER_REQUEST_ID, uuid.uuid4().hex)
    return response


def refusal(error: ApiError) -> web.Response:
    """The error as a response; Retry-After where waiting helps, no keep-alive where it does not."""
    response = web.json_response(error.body(), status=error.status)
    if error.retry_after:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.status == 503:
        response.force_close()
    return response
