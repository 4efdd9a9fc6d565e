"""The OpenAI API of one shard over HTTP. It carries; admission decides, the engine computes."""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tokenpool_api import names
from tokenpool_engine.api.admission import Admitted, admit, check_queue
from tokenpool_engine.api.openai import ApiError, ChatRequest, CompletionRequest, parse
from tokenpool_engine.api.replies import Reply
from tokenpool_engine.api.text import Detokenizer
from tokenpool_engine.engine import Stream, Update
from tokenpool_engine.request import Finish
from tokenpool_engine.shard import Parts, Shard

log = logging.getLogger(__name__)

BODY_BYTES = 8 << 20
STARTED = web.RequestKey("started", bool)
"""Set on a request whose answer is on its way."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Piece:
    """What an update brought in text. The last one has `finish`."""

    text: str
    tokens: int
    finish: Finish | None = None


class GenerationFailed(Exception):
    """The engine could not finish a request; the text is for the client."""


class Api:
    """Handlers over one shard. `open_streams` are the requests that run, for the drain."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.open_streams: set[Stream] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[answer_in_openai_form])
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/completions", self.completions)
        return app

    async def models(self, _request: web.Request) -> web.StreamResponse:
        """GET /v1/models."""
        entry = {"id": self._shard.served_name, "object": "model", "created": 0, "owned_by": "tokenpool"}
        return web.json_response({"object": "list", "data": [entry]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._generate(request, parse(ChatRequest, await request.read()))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._generate(request, parse(CompletionRequest, await request.read()))

    async def _generate(self, http: web.Request, body: ChatRequest | CompletionRequest) -> web.StreamResponse:
        parts = self._ready_parts()
        if body.model != self._shard.served_name:
            message = f"the model {body.model!r} does not exist; this pool serves {self._shard.served_name!r}"
            raise ApiError(404, message, code="model_not_found", param="model")
        is_chat = isinstance(body, ChatRequest)
        identity = f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        admitted = await asyncio.to_thread(admit, body, parts, identity)
        self._ready_parts()  # a drain that began meanwhile does not wait for this one
        check_queue(parts, admitted.request.limit, parts.metrics.tokens_per_second)
        prompt_tokens = len(admitted.request.prompt)
        reply = Reply(identity, int(time.time()), body.model, is_chat, prompt_tokens, body.includes_usage)
        stream = self._open(parts, admitted)
        try:
            pieces = read_pieces(stream, Detokenizer(parts.tokenizer, admitted.stops))
            if body.stream:
                return await send_stream(http, reply, pieces)
            return await send_whole(reply, pieces)
        finally:
            # Also when the client went away: the slot is free before the next step.
            parts.engine.cancel(stream)
            self._close(parts, stream)

    def _ready_parts(self) -> Parts:
        parts, reason = self._shard.parts, self._shard.not_ready
        if parts is None or reason:
            raise ApiError(503, f"this shard takes no requests: {reason}", code="shard_not_ready", retry_after=1)
        return parts

    def _open(self, parts: Parts, admitted: Admitted) -> Stream:
        stream = parts.engine.submit(admitted.request)
        self.open_streams.add(stream)
        self._idle.clear()
        return stream

    def _close(self, parts: Parts, stream: Stream) -> None:
        self.open_streams.discard(stream)
        if not self.open_streams:
            self._idle.set()
        parts.metrics.requests.labels((stream.ended or Finish.CANCELLED).value).inc()

    async def wait_idle(self, seconds: float) -> bool:
        """Wait until no request runs; False when that took too long."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def cut(self, parts: Parts, error: str) -> None:
        """End what still runs with an explicit error."""
        for stream in self.open_streams:
            stream.updates.put_nowait(Update(finish=Finish.ERROR, error=error))
            parts.engine.cancel(stream)


async def read_pieces(stream: Stream, detokenizer: Detokenizer) -> AsyncIterator[Piece]:
    """Text as it becomes certain. Raises GenerationFailed."""
    tokens = 0
    while True:
        update = await stream.updates.get()
        if update.finish in (Finish.ERROR, Finish.CANCELLED):
            stream.ended = update.finish
            raise GenerationFailed(update.error or "the request was cancelled")
        tokens += len(update.tokens)
        try:
            text = detokenizer.push(update.tokens)
            if update.finish and not detokenizer.stopped:
                text += detokenizer.finish()
        except Exception as error:
            # Tokenizers come with the model. The headers may be out already: the stream itself must say that it ends.
            log.exception("tokens could not be made text")
            stream.ended = Finish.ERROR
            raise GenerationFailed(f"the answer's tokens could not be made text: {type(error).__name__}") from error
        if detokenizer.stopped or update.finish:
            stream.ended = Finish.STOP if detokenizer.stopped else update.finish
            yield Piece(text, tokens, stream.ended)
            return
        if text:
            yield Piece(text, tokens)


async def send_whole(reply: Reply, pieces: AsyncIterator[Piece]) -> web.StreamResponse:
    """One JSON body."""
    texts: list[str] = []
    last = Piece("", 0)
    try:
        async for last in pieces:
            texts.append(last.text)
    except GenerationFailed as error:
        raise ApiError(500, str(error), code="generation_failed") from error
    return web.json_response(reply.whole("".join(texts), str(last.finish), last.tokens))


async def send_stream(http: web.Request, reply: Reply, pieces: AsyncIterator[Piece]) -> web.StreamResponse:
    """Server-sent events; ends with [DONE], or with an error event and without it."""
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    )
    http[STARTED] = True
    await response.prepare(http)
    opening = reply.opening()
    if opening:
        await response.write(event(opening))
    try:
        async for piece in pieces:
            if piece.text:
                await response.write(event(reply.piece(piece.text)))
            if piece.finish:
                await response.write(event(reply.closing(piece.finish)))
                if reply.includes_usage:
                    await response.write(event(reply.usage_chunk(piece.tokens)))
                await response.write(b"data: [DONE]\n\n")
    except GenerationFailed as error:
        await response.write(event(ApiError(500, str(error), code="generation_failed").body()))
    await response.write_eof()
    return response


def bug() -> ApiError:
    """What a client hears of an error that is the shard's own; the log has the rest."""
    return ApiError(500, "the shard has a bug; its log tells more", code="internal_error")


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


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
