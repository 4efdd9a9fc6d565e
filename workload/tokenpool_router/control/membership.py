"""Who may be picked, and for how much: EndpointSlices and the operator's roster, turned into shards. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from tokenpool_api import names
from tokenpool_api.wire import Roster, RosterEntry
from tokenpool_router.sharding import Shard

SERVICE_LABEL: Final = "kubernetes.io/service-name"


class Members:
    """What is known of the pool's shards. Either source may come first, and each is kept while it is away."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._addresses: dict[str, str] | None = None
        self._roster = Roster()

    @property
    def are_known(self) -> bool:
        """The list of shards has come, even an empty one."""
        return self._addresses is not None

    @property
    def generation(self) -> int:
        """Of the roster that `shards` follow."""
        return self._roster.generation

    def set_slices(self, slices: Iterable[dict[str, Any]]) -> None:
        """EndpointSlices of the pool's shards, all of them."""
        self._addresses = addresses(slices)

    def set_static(self, found: Iterable[str]) -> None:
        """Shards without Kubernetes: "host:port", named by their address."""
        self._addresses = {address: address for address in found}

    def set_roster(self, roster: Roster | None) -> None:
        """What the operator wants; None when it says nothing. An older roster than the last one is no news.

        A roster that was taken away may begin again at any generation.
        """
        if roster is None:
            self._roster = Roster()
        elif roster.generation >= self._roster.generation:
            self._roster = roster

    def shards(self) -> list[Shard]:
        """By name. Who is not in the roster has its full weight: the operator may not have seen it yet."""
        found = []
        for name, address in sorted((self._addresses or {}).items()):
            entry = self._roster.shards.get(name) or RosterEntry()
            found.append(
                Shard(
                    name,
                    address,
                    weight=entry.weight,
                    draining=entry.draining,
                    max_requests=self._max_requests,
                    max_tokens=self._max_tokens,
                    revision=entry.revision or revision_of(name),
                )
            )
        return found


def revision_of(name: str) -> str:
    """Of a shard's pod: "<pool>-<revision>-<ordinal>"; empty for any other name."""
    parts = name.rsplit("-", 2)
    is_ours = len(parts) == 3 and len(parts[1]) == names.REVISION_LENGTH and parts[2].isdecimal()
    return parts[1] if is_ours else ""


def read_roster(config_map: Mapping[str, Any] | None) -> Roster | None:
    """The roster in its ConfigMap, None where there is none. Raises ValueError when it cannot be read."""
    text = (config_map or {}).get("data", {}).get(names.ROSTER_KEY)
    if text is None:
        return None
    try:
        return Roster.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def addresses(slices: Iterable[dict[str, Any]]) -> dict[str, str]:
    """ "host:port" by pod name, of ready shards that are not leaving. A shard in two slices counts once."""
    found: dict[str, str] = {}
    for entry in slices:
        port = next((p["port"] for p in entry.get("ports") or [] if p.get("name") == names.PORT_NAME_API), None)
        for endpoint in entry.get("endpoints") or []:
            name, host = _endpoint(endpoint)
            if name and host:
                found[name] = (
                    f"[{host}]:{port or names.SHARD_API_PORT}"
                    if ":" in host
                    else (f"{host}:{port or names.SHARD_API_PORT}")
                )
    return found


def _endpoint(endpoint: dict[str, Any]) -> tuple[str, str]:
    """Pod name and address, empty for one that is not to be used."""
    conditions = endpoint.get("conditions") or {}
    # An absent `ready` means unknown, which the API asks readers to take as ready.
    if conditions.get("ready") is False or conditions.get("terminating"):
        return "", ""
    hosts = endpoint.get("addresses") or [""]
    return (endpoint.get("targetRef") or {}).get("name") or "", hosts[0]
