"""Service accounts. Shards have one without any right and without a token, routers one that may read endpoints."""

from typing import Any

from tokenpool_api import names
from tokenpool_operator.manifests import metadata
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]


def shards_service_account(owner: Owner) -> Raw:
    """The account that shards run as."""
    return _account(owner, names.shards_service_name(owner.name), names.COMPONENT_SHARD)


def router_service_account(owner: Owner) -> Raw:
    """The account that routers run as; their pods ask for the token by themselves."""
    return _account(owner, names.router_name(owner.name), names.COMPONENT_ROUTER)


def _account(owner: Owner, name: str, component: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata.metadata(owner, name, component),
        "automountServiceAccountToken": False,
    }
