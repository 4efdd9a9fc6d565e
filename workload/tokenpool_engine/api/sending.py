"""Sends an answer. Updates are written where they arrive, inside the event loop's turn: no task wakes for a chunk
unless the client reads too slowly.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import orjson
from aiohttp import web
from aiohttp.http import HttpVersion11

from tokenpool_api import names
from tokenpool_engine.api.answer import Answer, Piece
from tokenpool_engine.api.errors import ApiError, GenerationFailed, bug
from tokenpool_engine.api.replies import DONE, ChoiceReply, Reply, event

log = logging.getLogger(__name__)

STARTED = web.RequestKey("started", bool)
"""Set on a request whose answer is on its way."""
# Beyond this, what the client has not read waits as updates, which become one chunk.
UNREAD_BYTES = 1 << 16


def listen(answers: Sequence[Answer], arrived: Callable[[Answer], None]) -> None:
    """Call `arrived` for every update of every answer."""
    for answer in answers:
        answer.stream.updates.listen(partial(arrived, answer))


async def send_whole(reply: Reply, answers: Sequence[Answer], choices: Sequence[ChoiceReply]) -> web.StreamResponse:
    """One JSON body."""
    pieces: list[list[Piece]] = [[] for _ in answers]
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrived(answer: Answer) -> None:
        if over.done():
            return
        try:
            piece = answer.take()
        except Exception as error:
            over.set_exception(error)
            return
        if piece:
            pieces[answer.index].append(piece)
        if all(one.stream.ended for one in answers):
            over.set_result(None)

    listen(answers, arrived)
    try:
        await over
    except GenerationFailed as error:
        raise ApiError(500, str(error), code="generation_failed") from error
    bodies = [choice.whole(found) for choice, found in zip(choices, pieces, strict=True)]
    tokens = sum(answer.tokens for answer in answers)
    headers = {**reply.headers(), names.HEADER_COMPLETION_TOKENS: str(tokens)}
    body = orjson.dumps(reply.whole(bodies, tokens))
    return web.Response(body=body, content_type="application/json", headers=headers)


async def send_stream(
    http: web.Request, reply: Reply, answers: Sequence[Answer], choices: Sequence[ChoiceReply]
) -> web.StreamResponse:
    """Server-sent events; ends with [DONE], or with an error event and without it. Raises ApiError before the first."""
    return await EventSender(http, reply, answers, choices).run()


class EventSender:
    """The events of one answer. Before its first byte it may still become a refusal, or another shard's answer."""

    def __init__(
        self, http: web.Request, reply: Reply, answers: Sequence[Answer], choices: Sequence[ChoiceReply]
    ) -> None:
        self._http, self._reply, self._answers, self._choices = http, reply, answers, choices
        self._wake = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._chunked = http.version >= HttpVersion11
        self._failure: Exception | None = None

    async def run(self) -> web.StreamResponse:
        """Until the last byte is written."""
        listen(self._answers, self._arrived)
        first = await self._first()
        response = await self._open()
        self._write(first)
        while not self._is_over:
            await self._wake.wait()
            self._wake.clear()
            await self._http.writer.drain()
            self._write(self._events_of_all())
        self._write(self._end())
        await response.write_eof()
        return response

    @property
    def _is_over(self) -> bool:
        return self._failure is not None or all(answer.stream.ended for answer in self._answers)

    async def _first(self) -> bytes:
        """The first bytes there are to send."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            data = self._events_of_all()
            if isinstance(self._failure, GenerationFailed):
                raise ApiError(500, str(self._failure), code="generation_failed") from self._failure
            if self._failure:
                raise self._failure
            if data:
                return data

    async def _open(self) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                **self._reply.headers(),
            }
        )
        if self._chunked:
            response.enable_chunked_encoding()
        self._http[STARTED] = True
        await response.prepare(self._http)
        self._transport = self._http.transport
        # What arrived meanwhile found no transport.
        self._wake.set()
        return response

    def _arrived(self, answer: Answer) -> None:
        """An update came: write it now if that cannot block, else leave it to the task."""
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() > UNREAD_BYTES:
            self._wake.set()
            return
        self._write(self._events(answer))
        if self._is_over:
            self._wake.set()

    def _events_of_all(self) -> bytes:
        return b"".join([self._events(answer) for answer in self._answers])

    def _events(self, answer: Answer) -> bytes:
        """Never raises: who calls has other requests to serve."""
        if self._failure:
            return b""
        try:
            piece = answer.take()
            return self._choices[answer.index].events(piece) if piece else b""
        except Exception as error:
            self._failure = error
            return b""

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if data and transport and not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def _end(self) -> bytes:
        if self._failure is None:
            tokens = sum(answer.tokens for answer in self._answers)
            return (self._reply.usage_event(tokens) if self._reply.includes_usage else b"") + DONE
        if isinstance(self._failure, GenerationFailed):
            return event(ApiError(500, str(self._failure), code="generation_failed").body())
        log.error("a bug while an answer was sent", exc_info=self._failure)
        return event(bug().body())
