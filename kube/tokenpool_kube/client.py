"""The one way to the API server: REST paths, JSON and deadlines over the official client's connection, TLS and login.

Must not know what the objects mean, nor retry: a caller that gets an error knows best what is still wanted.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, cast
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient

from tokenpool_kube.credentials import READ_FAILURES, SERVICE_ACCOUNT, Credentials, find_credentials
from tokenpool_kube.errors import (
    Gone,
    NotConfigured,
    NotFound,
    Unauthorized,
    Unreachable,
    error_from_response,
    error_from_status,
)
from tokenpool_kube.kinds import Kind, Object

PAGE_OBJECTS: Final = 500
REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, sock_connect=5)
WATCH_SECONDS: Final = 240
# Bookmarks come about once a minute, so a stream that is silent for longer is dead, whatever TCP believes.
WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=75)

Query: TypeAlias = Mapping[str, str | int | None]


@dataclass(frozen=True)
class ObjectList:
    """All objects of a list, of every page, and the version to watch from."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True)
class Event:
    """One line of a watch. A BOOKMARK's object carries only its resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class Cluster:
    """A connection to one API server. Every call raises `ApiError` for a refusal and `Unreachable` for no answer."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._api = ApiClient(credentials.configuration)
        self._api.user_agent = "tokenpool"

    @classmethod
    async def connect(cls, *, kubeconfig: str | None = None, service_account: Path = SERVICE_ACCOUNT) -> Self:
        """Read the credentials (`credentials.find_credentials` tells from where); nothing is sent yet.

        Raises NotConfigured.
        """
        credentials = find_credentials(kubeconfig, service_account)
        try:
            await credentials.load()
        except READ_FAILURES as error:
            raise NotConfigured(f"no way to the API server: {error}") from error
        return cls(credentials)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, watches included."""
        await self._api.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object as it is now (a quorum read), or None."""
        try:
            return await self._request("GET", kind.path(namespace, name))
        except NotFound:
            return None

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
    ) -> ObjectList:
        """All objects, in pages, in one consistent state. `namespace=None` means all namespaces.

        Without `resource_version` the state is the newest; "0" means any, which is cheaper and may lie in the past.
        """
        query: Query = {"labelSelector": labels, "fieldSelector": fields, "resourceVersion": resource_version}
        try:
            return await self._list_pages(kind, namespace, {**query, "limit": PAGE_OBJECTS})
        except Gone:
            # The continue token outlived its snapshot. One unpaged answer cannot.
            return await self._list_pages(kind, namespace, query)

    async def _list_pages(self, kind: Kind, namespace: str | None, query: Query) -> ObjectList:
        items: list[Object] = []
        while True:
            page = await self._request("GET", kind.path(namespace), query)
            if not str(page.get("kind")).endswith("List"):
                raise Unreachable(f"GET {kind.path(namespace)}: something that is not the API server answered")
            # Lists of built-in kinds leave these two out of their items; watches and gets do not.
            items += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []]
            following = page["metadata"].get("continue")
            if not following:
                return ObjectList(items, page["metadata"].get("resourceVersion", ""))
            # The server refuses a version beside a token, which carries its own.
            query = {**query, "continue": following, "resourceVersion": None}

    async def create(self, kind: Kind, namespace: str | None, body: Object) -> Object:
        """Raises AlreadyExists when the name is taken."""
        return await self._request("POST", kind.path(namespace), body=body)

    async def create_sub(self, kind: Kind, namespace: str | None, name: str, sub: str, body: Object) -> Object:
        """POST to a subresource: `binding`, `eviction`, `token`. The answer is whatever that subresource answers."""
        return await self._request("POST", kind.path(namespace, name, sub), body=body)

    async def apply(
        self, kind: Kind, namespace: str | None, name: str, body: Object, *, manager: str, force: bool = True
    ) -> Object:
        """Server-side apply: the fields in `body` become ours, fields we no longer send go, the others' stay."""
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        content_type = "application/apply-patch+yaml"
        return await self._request("PATCH", kind.path(namespace, name), query, body=whole, content_type=content_type)

    async def replace(self, kind: Kind, namespace: str | None, name: str, body: Object) -> Object:
        """Raises Conflict when `body` carries a resourceVersion that is no longer the newest."""
        return await self._request("PUT", kind.path(namespace, name), body=body)

    async def replace_status(self, kind: Kind, namespace: str | None, name: str, body: Object) -> Object:
        """Write the whole status of `body`; everything else in it is ignored, except that resourceVersion must hold."""
        return await self._request("PUT", kind.path(namespace, name, "status"), body=body)

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Delete exactly the object that was seen. Gone already is fine; a namesake of another UID raises Conflict."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._request("DELETE", kind.path(namespace, name), body=options)
        except NotFound:
            return

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str,
    ) -> AsyncGenerator[Event, None]:
        """Changes since `resource_version`, bookmarks included, until the server ends the stream after some minutes.

        An ERROR inside the stream is raised. Wrap in `contextlib.aclosing` if you may leave early.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": labels,
            "fieldSelector": fields,
            "resourceVersion": resource_version,
            "timeoutSeconds": WATCH_SECONDS,
        }
        response = await self._send("GET", kind.path(namespace), query, timeout=WATCH_TIMEOUT)
        try:
            async for line in _lines(response):
                yield _parse_event(line)
        finally:
            # Not release(): what is left of a watch never ends, so the connection cannot be used again.
            response.close()

    async def _request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        response = await self._send(method, path, query or {}, body=body, content_type=content_type)
        try:
            return cast(Object, await response.json(content_type=None))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _unreachable(error, method, path) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        body: Object | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout = REQUEST_TIMEOUT,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type, **self._api.default_headers}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = f"{self._credentials.configuration.host}{path}"
        if told := urlencode({key: value for key, value in query.items() if value is not None}):
            url += f"?{told}"
        try:
            wrapped = await self._api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
            response = cast(aiohttp.ClientResponse, wrapped.response)
            if response.ok:
                return response
            refusal = error_from_response(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error, method, path) from error
        if isinstance(refusal, Unauthorized):
            self._credentials.distrust()
        raise refusal


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """The lines of a stream. Our own splitting, because aiohttp's has a limit on their length."""
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _unreachable(error, "watch", response.url.path) from error
    if rest.strip():
        raise Unreachable(f"watch {response.url.path}: the stream ended inside a line")


def _parse_event(line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise _unreachable(error, "watch", "") from error
    if event["type"] == "ERROR":
        raise error_from_status(event["object"])
    return Event(event["type"], event["object"])


def _unreachable(error: Exception, method: str, path: str) -> Unreachable:
    return Unreachable(f"{method} {path}: {type(error).__name__}: {error}".rstrip(": "))
