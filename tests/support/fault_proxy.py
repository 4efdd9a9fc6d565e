"""A reverse proxy in front of the API server that does, on request, what networks and control planes do on bad days.

Speaks plain HTTP on loopback and passes the caller's token on. Knows the API's verbs and paths, not its objects.
"""

import asyncio
import inspect
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from yarl import URL

from support.api_paths import Call, parse_call
from support.faults import Answer, Delay, Fault, Freeze, LoseReply, Refuse, Rule, StreamError, error_line, status_object

# Hop-by-hop, or wrong once aiohttp has unpacked the body.
NOT_FORWARDED = {"host", "connection", "transfer-encoding", "content-length", "content-encoding", "accept-encoding"}
LINE_BYTES = 2**23


@dataclass(frozen=True)
class Write:
    """A write that reached the API server, and what it answered."""

    call: Call
    status: int


class Stream:
    """One watch on its way through the proxy."""

    def __init__(self, call: Call, request: web.Request, reply: web.StreamResponse) -> None:
        self.call = call
        self.request = request
        self.reply = reply
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.relay: asyncio.Task[None] | None = None

    def cut(self) -> None:
        """Reset the connection."""
        _abort(self.request)
        self.end()

    def end(self) -> None:
        if self.relay is not None:
            self.relay.cancel()


class FaultProxy:
    """`async with FaultProxy(url, ca_file) as proxy:` then point clients at `proxy.url`.

    `inject()` aims a fault at calls to come; `cut_watches`, `freeze_watches` and `expire_watches` hit the open streams.
    """

    def __init__(self, upstream: str, ca_file: Path) -> None:
        self._upstream = upstream
        self._ca_file = ca_file
        self._rules: list[Rule] = []
        self._streams: set[Stream] = set()
        self._after_write: dict[int, Callable[[], Awaitable[None] | None]] = {}
        self.url = ""
        self.calls: list[Call] = []
        self.writes: list[Write] = []
        self.drops_event: Callable[[Call, dict[str, Any]], bool] = lambda _call, _event: False
        """Set to lose single events of watches: called with the watch and the event."""

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cafile=self._ca_file)
        # As in every Go client: the API server's self-made certificate has no key identifier.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=LINE_BYTES,
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Without handler_cancellation a watch would outlive its client on the upstream side.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cut_watches()
        await self._runner.cleanup()
        await self._session.close()

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig that leads through the proxy."""
        user = {"name": "test", "user": {"token": token}}
        cluster = {"name": "proxy", "cluster": {"server": self.url}}
        context = {"name": "test", "context": {"cluster": "proxy", "user": "test"}}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context]}
        path.write_text(json.dumps({**config, "current-context": "test"}))
        return path

    def inject(
        self,
        fault: Fault,
        *,
        verb: str | None = None,
        resource: str | None = None,
        path: str | None = None,
        times: int | None = 1,
    ) -> Rule:
        """Do `fault` to the next `times` calls that match (None: until `heal`). `path` is a regular expression."""
        rule = Rule(fault, verb, resource, path, times)
        self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Forget all rules, and lose no more events."""
        self._rules.clear()
        self.drops_event = lambda _call, _event: False

    def after_write(self, count: int, action: Callable[[], Awaitable[None] | None]) -> None:
        """Call `action` once the count-th write from now (1 is the next) is done upstream and before it is answered."""
        self._after_write[len(self.writes) + count] = action

    def open_watches(self, resource: str | None = None) -> list[Stream]:
        return [stream for stream in self._streams if resource in (None, stream.call.resource)]

    def cut_watches(self, resource: str | None = None) -> None:
        for stream in self.open_watches(resource):
            stream.cut()

    def freeze_watches(self, resource: str | None = None) -> None:
        """Let the open streams fall silent for ever, with TCP still up. New ones are not touched."""
        for stream in self.open_watches(resource):
            stream.flowing.clear()

    async def expire_watches(self, resource: str | None = None, code: int = 410) -> None:
        """Send an ERROR event into the open streams, then end them in good order."""
        for stream in self.open_watches(resource):
            await stream.reply.write(error_line(code))
            stream.end()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = parse_call(request.method, request.path, request.query)
        self.calls.append(call)
        fault = next((rule.strike(call) for rule in self._rules if rule.meets(call)), None)
        match fault:
            case Answer():
                return _answer(fault)
            case Refuse():
                return _abort(request)
            case StreamError(code):
                return web.Response(body=error_line(code), content_type="application/json")
            case Delay(seconds):
                await asyncio.sleep(seconds)
        return await self._forward(request, call, fault)

    async def _forward(self, request: web.Request, call: Call, fault: Fault | None) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in NOT_FORWARDED}
        body = await request.read()
        try:
            url = URL(self._upstream + request.raw_path, encoded=True)
            async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
                if call.verb == "watch" and answer.status == 200:
                    return await self._relay_watch(request, call, answer, is_frozen=isinstance(fault, Freeze))
                whole = await answer.read()
        except (aiohttp.ClientError, OSError):
            # Upstream is away: its client shall see what it would see without us.
            return _abort(request)
        await self._note_write(call, answer.status)
        if isinstance(fault, LoseReply):
            return _abort(request)
        kept = {key: value for key, value in answer.headers.items() if key.lower() not in NOT_FORWARDED}
        return web.Response(status=answer.status, headers=kept, body=whole)

    async def _note_write(self, call: Call, status: int) -> None:
        if not call.is_write:
            return
        self.writes.append(Write(call, status))
        if action := self._after_write.pop(len(self.writes), None):
            outcome = action()
            if inspect.isawaitable(outcome):
                await outcome

    async def _relay_watch(
        self, request: web.Request, call: Call, answer: aiohttp.ClientResponse, *, is_frozen: bool
    ) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "application/json"})
        await reply.prepare(request)
        stream = Stream(call, request, reply)
        if is_frozen:
            stream.flowing.clear()
        stream.relay = asyncio.create_task(self._relay(stream, answer))
        self._streams.add(stream)
        try:
            await asyncio.wait([stream.relay])
        finally:
            self._streams.discard(stream)
            stream.relay.cancel()
            answer.close()
        if not stream.relay.cancelled() and stream.relay.exception():
            stream.cut()
        return reply

    async def _relay(self, stream: Stream, answer: aiohttp.ClientResponse) -> None:
        async for line in answer.content:
            await stream.flowing.wait()
            if not self.drops_event(stream.call, json.loads(line)):
                await stream.reply.write(line)


def _answer(fault: Answer) -> web.Response:
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    if fault.plain:
        return web.Response(status=fault.status, headers=headers, text="injected, please try again later.\n")
    body = json.dumps(status_object(fault.status, fault.retry_after))
    return web.Response(status=fault.status, headers=headers, text=body, content_type="application/json")


def _abort(request: web.Request) -> web.Response:
    """Reset the connection. The response only satisfies the framework; nobody is left to get it."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
