"""Who may be picked, and for how much: EndpointSlices and the operator's roster, turned into shards. Pure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tokenpool_api import names
from tokenpool_router.sharding import Shard

if TYPE_CHECKING:
    from tokenpool_api.wire import Roster

SERVICE_LABEL: Final = "kubernetes.io/service-name"


class Members:
    """What is known of the pool's shards. Either source may come first, and each is kept while it is away."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._addresses: dict[str, str] | None = None
        self._roster: Roster | None = None
        self._may_begin_anew = False

    @property
    def are_known(self) -> bool:
        """The list of shards has come, even an empty one."""
        return self._addresses is not None

    @property
    def generation(self) -> int:
        """Of the roster that `shards` follow; 0 before the first, and of one that was taken away: it is no answer to
        whether its successor is applied."""
        return self._roster.generation if self._roster and not self._may_begin_anew else 0

    def set_slices(self, slices: Iterable[dict[str, Any]]) -> None:
        """EndpointSlices of the pool's shards, all of them."""
        self._addresses = addresses(slices)

    def set_static(self, found: Iterable[str]) -> None:
        """Shards without Kubernetes: "host:port", named by their address."""
        self._addresses = {address: address for address in found}

    def set_roster(self, roster: "Roster | None") -> None:
        """What the operator wants; None when it says nothing.

        An older roster than the last one is no news. One that was taken away stays in force, or shards that drain would
        get requests because somebody deleted a ConfigMap; the one that is made after it may begin at any generation.
        """
        if roster is None:
            self._may_begin_anew = True
        elif roster.generation >= self.generation:
            self._roster, self._may_begin_anew = roster, False

    def shards(self) -> list[Shard]:
        """By name. Who is not in the roster has its full weight: the operator may not have seen it yet."""
        return [self._shard(name, address) for name, address in sorted((self._addresses or {}).items())]

    def _shard(self, name: str, address: str) -> Shard:
        entry = self._roster.shards.get(name) if self._roster else None
        return Shard(
            name,
            address,
            weight=entry.weight if entry else 1.0,
            draining=entry is not None and entry.draining,
            max_requests=self._max_requests,
            max_tokens=self._max_tokens,
            revision=(entry.revision if entry else "") or revision_of(name),
        )


def revision_of(name: str) -> str:
    """Of a shard's pod: "<pool>-<revision>-<ordinal>"; empty for any other name."""
    parts = name.rsplit("-", 2)
    is_ours = len(parts) == 3 and len(parts[1]) == names.REVISION_LENGTH and parts[2].isdecimal()
    return parts[1] if is_ours else ""


def addresses(slices: Iterable[dict[str, Any]]) -> dict[str, str]:
    """ "host:port" by pod name, of ready shards that are not leaving. A shard in two slices counts once."""
    found: dict[str, str] = {}
    for entry in slices:
        port = next((p["port"] for p in entry.get("ports") or [] if p.get("name") == names.PORT_NAME_API), None)
        for endpoint in entry.get("endpoints") or []:
            name, host = _endpoint(endpoint)
            if name and host:
                found[name] = f"{f'[{host}]' if ':' in host else host}:{port or names.SHARD_API_PORT}"
    return found


def hosts(slices: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Addresses by pod name, whatever the pods' state: who drains has requests under way too."""
    found: dict[str, str] = {}
    for entry in slices:
        for endpoint in entry.get("endpoints") or []:
            name = (endpoint.get("targetRef") or {}).get("name")
            for host in (endpoint.get("addresses") or [])[:1]:
                if name:
                    found[name] = f"[{host}]" if ":" in host else host
    return found


def _endpoint(endpoint: dict[str, Any]) -> tuple[str, str]:
    """Pod name and address, empty for one that is not to be used."""
    conditions = endpoint.get("conditions") or {}
    # An absent `ready` means unknown, which the API asks readers to take as ready.
    if conditions.get("ready") is False or conditions.get("terminating"):
        return "", ""
    hosts = endpoint.get("addresses") or [""]
    return (endpoint.get("targetRef") or {}).get("name") or "", hosts[0]
