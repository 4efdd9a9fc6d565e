"""The event that tells people of a change. Its name is a hash of what it tells, so that telling twice makes one."""

import hashlib
from typing import Any

from tokenpool_api import names
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]

NOTE_LENGTH = 1024


def pool_event(owner: Owner, generation: int, *, type_: str, reason: str, note: str, reporter: str, now: str) -> Raw:
    """An events.k8s.io/v1 Event about the pool; one per reason and generation."""
    digest = hashlib.sha256(f"{owner.uid}/{generation}/{reason}".encode()).hexdigest()[:10]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{owner.name}.{digest}", "namespace": owner.namespace},
        "eventTime": now,
        "type": type_,
        "reason": reason,
        "note": note[:NOTE_LENGTH],
        "action": "Reconcile",
        "reportingController": f"{names.GROUP}/operator",
        "reportingInstance": reporter,
        "regarding": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": owner.name,
            "namespace": owner.namespace,
            "uid": owner.uid,
        },
    }
