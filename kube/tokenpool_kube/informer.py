"""A mirror of one collection: list, then watch, and list again whenever the watch can no longer be trusted.

What is gone from the server is gone from the snapshot, also when nobody told us so. No answer of the server ends the
informer. Must not know what the objects mean.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from tokenpool_kube.backoff import Backoff
from tokenpool_kube.client import Event, ObjectList
from tokenpool_kube.errors import ClusterError, Forbidden, TooManyRequests, Unauthorized, Unreachable
from tokenpool_kube.kinds import Kind, Object

log = logging.getLogger(__name__)

RELIST_SECONDS: Final = 600.0

Snapshot: TypeAlias = Mapping[str, Object]
"""Objects by "namespace/name" (by name where the kind has no namespaces). Frozen: each change makes a new one."""

OnChange: TypeAlias = Callable[[Snapshot], Awaitable[None]]

# These say nothing about the version we watch from, so the watch may resume there. Any other error may be about it.
KEEPS_VERSION: Final = (Unreachable, Unauthorized, Forbidden, TooManyRequests)


class _OutOfOrder(ClusterError):
    """The stream went back in time. Nothing on the way may do that, so what it left out is unknown too: list again."""


class Source(Protocol):
    """Where the objects come from: `Cluster`, or a fake in tests."""

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
    ) -> ObjectList:
        """See `Cluster.list`."""
        ...

    def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str,
    ) -> AsyncGenerator[Event, None]:
        """See `Cluster.watch`."""
        ...


class Informer:
    """Mirrors the objects of one kind that match selectors of labels and of fields.

    Whoever awaits `run()` owns it; cancelling that stops it.

    `on_change` is awaited after the first list (even an empty one) and after every change. No event is read meanwhile,
    so it should only note the snapshot; what it raises ends `run()`. Objects come without `metadata.managedFields`.
    """

    def __init__(
        self,
        source: Source,
        kind: Kind,
        namespace: str | None,
        on_change: OnChange,
        *,
        labels: str | None = None,
        fields: str | None = None,
        relist_seconds: float = RELIST_SECONDS,
        backoff: Backoff | None = None,
    ) -> None:
        self._source = source
        self._kind = kind
        self._namespace = namespace
        self._labels, self._fields = labels, fields
        self._on_change = on_change
        self._relist_seconds = relist_seconds
        self._backoff = backoff or Backoff()
        self._version: str | None = None
        self._listed_at = 0.0
        self._last_event_at: float | None = None
        self._synced = asyncio.Event()
        self.snapshot: Snapshot = MappingProxyType({})
        self.last_error: ClusterError | None = None
        """Why the mirror is not live at this moment; None while it is."""

    @property
    def is_synced(self) -> bool:
        """Whether the first list has come and its `on_change` is done."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once `is_synced`. Set a deadline of your own."""
        await self._synced.wait()

    def last_event_age(self, now: float) -> float:
        """Seconds since the last list, event or bookmark came; before the first one, since the start.

        `now` is on the event loop's clock. A live watch stays under about 65 s.
        """
        return 0.0 if self._last_event_at is None else max(0.0, now - self._last_event_at)

    async def run(self) -> None:
        """Mirror until cancelled."""
        self._last_event_at = self._now()
        while True:
            try:
                if self._is_list_due():
                    await self._list()
                heard_something = await self._watch(self._version or "")
            except ClusterError as error:
                await self._pause_after(error)
            else:
                if not heard_something:
                    # A server or proxy that ends watches at once must not make us spin.
                    await asyncio.sleep(self._backoff.next_seconds())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _is_list_due(self) -> bool:
        # Listing now and then although all seems well heals what a lossy proxy or a restored etcd did to the stream.
        return self._version is None or self._now() - self._listed_at >= self._relist_seconds

    async def _list(self) -> None:
        # Always the newest state: "0" could answer from the past, and undo deletions that we have seen.
        listed = await self._source.list(self._kind, self._namespace, labels=self._labels, fields=self._fields)
        self._version = listed.resource_version
        self._listed_at = self._last_event_at = self._now()
        self.last_error = None
        objects = {self._key(item): _without_managed_fields(item) for item in listed.items}
        if not self._synced.is_set() or _identities(objects) != _identities(self.snapshot):
            await self._publish(objects)
        self._synced.set()

    async def _watch(self, version: str) -> bool:
        """Follow one stream to its end. Returns whether anything came."""
        heard_something = False
        stream = self._source.watch(
            self._kind, self._namespace, labels=self._labels, fields=self._fields, resource_version=version
        )
        async with aclosing(stream) as events:
            async for event in events:
                heard_something = True
                self._last_event_at = self._now()
                self.last_error = None
                self._backoff.reset()
                await self._take(event)
        return heard_something

    async def _take(self, event: Event) -> None:
        version = event.object["metadata"]["resourceVersion"]
        if _is_older(version, self._version):
            raise _OutOfOrder(f"version {version} came after {self._version}")
        self._version = version
        key = self._key(event.object)
        match event.type:
            case "ADDED" | "MODIFIED":
                item = _without_managed_fields(event.object)
                if item != self.snapshot.get(key):
                    await self._publish({**self.snapshot, key: item})
            case "DELETED" if key in self.snapshot:
                await self._publish({other: item for other, item in self.snapshot.items() if other != key})
            case _:
                pass  # bookmarks, and kinds of events yet to be invented, only move the version

    async def _publish(self, objects: dict[str, Object]) -> None:
        self.snapshot = MappingProxyType(objects)
        try:
            await self._on_change(self.snapshot)
        except ClusterError as error:
            # It would look like trouble with the watch, and be retried for ever.
            raise RuntimeError("an informer's on_change must not call the API server") from error

    async def _pause_after(self, error: ClusterError) -> None:
        self.last_error = error
        if not isinstance(error, KEEPS_VERSION):
            self._version = None
        seconds = self._backoff.next_seconds(error.retry_after)
        log.warning("%s: trying again in %.1f s: %s", self._kind.plural, seconds, error)
        await asyncio.sleep(seconds)

    def _key(self, item: Object) -> str:
        metadata = item["metadata"]
        name: str = metadata.get("name", "")
        return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else name


def _without_managed_fields(item: Object) -> Object:
    """They are half of an object's size, and nobody here reads them."""
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "managedFields"}}


def _identities(objects: Snapshot) -> dict[str, tuple[str, str]]:
    return {key: (item["metadata"]["uid"], item["metadata"]["resourceVersion"]) for key, item in objects.items()}


def _is_older(version: str, than: str | None) -> bool:
    """Versions of one collection are growing numbers, says Kubernetes' API contract. Nothing else is compared."""
    return than is not None and version.isdigit() and than.isdigit() and int(version) < int(than)
