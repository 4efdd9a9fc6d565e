"""The master question of most integration tests: does it get there, and does it then stay there without another write?

Knows how to see that objects changed; must not know what they should look like.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tokenpool_kube import Cluster, Kind, kinds

WATCHED_KINDS: Final = (
    kinds.POD,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
    kinds.CONFIG_MAP,
    kinds.DEPLOYMENT,
    kinds.ENDPOINT_SLICE,
    kinds.NETWORK_POLICY,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.ROLE,
    kinds.ROLE_BINDING,
    kinds.TOKENPOOL,
)
POLL_SECONDS: Final = 0.1

Predicate = Callable[[], Awaitable[bool]]


async def assert_becomes(predicate: Predicate, *, within_seconds: float = 30.0) -> None:
    """Wait until `predicate` returns True. It may assert instead: its last AssertionError becomes the cause of ours."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_seconds
    while True:
        reason: AssertionError | None = None
        try:
            if await predicate():
                return
        except AssertionError as error:
            reason = error
        if loop.time() >= deadline:
            name = getattr(predicate, "__qualname__", repr(predicate))
            raise AssertionError(f"not true within {within_seconds:g} s: {name}: {reason or 'False'}") from reason
        await asyncio.sleep(POLL_SECONDS)


async def assert_settles(
    cluster: Cluster,
    namespace: str,
    predicate: Predicate,
    *,
    within_seconds: float = 30.0,
    quiet_seconds: float = 3.0,
    watched: Sequence[Kind] = WATCHED_KINDS,
    count_writes: Callable[[], int] = lambda: 0,
) -> None:
    """Wait until `predicate` holds and nothing changed for `quiet_seconds`; then it must hold still.

    `count_writes` (`lambda: len(proxy.writes)`) also catches writes that change nothing, which no version shows.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_seconds
    await assert_becomes(predicate, within_seconds=within_seconds)
    while True:
        before, writes = await _versions(cluster, namespace, watched), count_writes()
        await asyncio.sleep(quiet_seconds)
        changed = _changes(before, await _versions(cluster, namespace, watched))
        more_writes = count_writes() - writes
        if not changed and not more_writes:
            break
        if loop.time() >= deadline:
            raise AssertionError(f"no {quiet_seconds:g} s of quiet: changed {changed}, {more_writes} writes")
    if not await predicate():
        raise AssertionError("it was true, then quiet, and is true no more")


async def _versions(cluster: Cluster, namespace: str, watched: Sequence[Kind]) -> dict[str, str]:
    versions = {}
    for kind in watched:
        for item in (await cluster.list(kind, namespace)).items:
            metadata = item["metadata"]
            versions[f"{kind.kind}/{metadata['name']}"] = f"{metadata['uid']}@{metadata['resourceVersion']}"
    return versions


def _changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted({name for name, _ in before.items() ^ after.items()})
