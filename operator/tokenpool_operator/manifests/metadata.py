"""Labels and owner of everything that a pool has. The one place that says who owns whom."""

from dataclasses import dataclass
from typing import Any

from tokenpool_api import names

Raw = dict[str, Any]


@dataclass(frozen=True)
class Owner:
    """The pool that an object belongs to."""

    name: str
    namespace: str
    uid: str


def selector(pool: str, component: str) -> dict[str, str]:
    """Labels that pick the pool's pods of one component."""
    return {names.LABEL_POOL: pool, names.LABEL_COMPONENT: component}


def selector_text(pool: str, component: str) -> str:
    """The same as a query."""
    return ",".join(f"{label}={value}" for label, value in sorted(selector(pool, component).items()))


def labels(pool: str, component: str) -> dict[str, str]:
    """Labels of every object of one component."""
    return {
        names.LABEL_NAME: names.APP_NAME,
        names.LABEL_MANAGED_BY: names.MANAGER,
    } | selector(pool, component)


def metadata(owner: Owner, name: str, component: str) -> Raw:
    """Name, labels and controlling owner. The garbage collector removes the object with the pool."""
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": labels(owner.name, component),
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
