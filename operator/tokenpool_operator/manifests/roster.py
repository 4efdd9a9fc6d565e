"""The roster: what routers are to do with each shard, in a ConfigMap that they watch.

Its generation rises with each change and is read back from the cluster, so it goes on where a former operator was.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tokenpool_api import names
from tokenpool_api.wire import Roster, RosterEntry
from tokenpool_operator.manifests import metadata
from tokenpool_operator.manifests.metadata import Owner
from tokenpool_operator.observe import Shard

Raw = dict[str, Any]


def roster_config_map(owner: Owner, shards: Sequence[Shard], leaving: Sequence[str], live: Raw | None) -> Raw:
    """`leaving` are names of shards that this pass removes; `live` is the ConfigMap as it is now."""
    entries = {
        shard.name: RosterEntry(draining=shard.is_terminating or shard.name in leaving, revision=shard.revision)
        for shard in sorted(shards, key=lambda shard: shard.name)
    }
    roster = Roster(generation=_generation(entries, live), shards=entries)
    body = metadata.metadata(owner, names.roster_name(owner.name), names.COMPONENT_ROUTER)
    text = json.dumps(roster.model_dump(mode="json", by_alias=True), separators=(",", ":"))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": body, "data": {names.ROSTER_KEY: text}}


def _generation(entries: Mapping[str, RosterEntry], live: Raw | None) -> int:
    text = ((live or {}).get("data") or {}).get(names.ROSTER_KEY, "")
    try:
        last = Roster.model_validate_json(text)
    except ValidationError:
        # None yet, or somebody wrote into it. Routers take a roster that begins anew only when the old one is gone,
        # so go on from the ConfigMap's own count of changes, which is above any generation that we gave.
        return _changes(live) + 1
    return last.generation if last.shards == entries else last.generation + 1


def _changes(live: Raw | None) -> int:
    version = ((live or {}).get("metadata") or {}).get("resourceVersion", "0")
    return int(version) if str(version).isdecimal() else 0
