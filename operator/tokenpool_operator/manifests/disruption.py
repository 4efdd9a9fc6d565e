"""The disruption budget: voluntary evictions take one shard at a time."""

from typing import Any

from tokenpool_api import names
from tokenpool_operator.manifests import metadata
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]


def shards_disruption_budget(owner: Owner, desired: int) -> Raw:
    """An integer `minAvailable`, kept current. A pool of one may be evicted: blocking node drains for ever is worse."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata.metadata(owner, names.shards_service_name(owner.name), names.COMPONENT_SHARD),
        "spec": {
            "minAvailable": max(desired - 1, 0),
            "selector": {"matchLabels": metadata.selector(owner.name, names.COMPONENT_SHARD)},
            # A shard that never became ready protects nobody.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
