"""The Service that clients talk to, and the headless one whose EndpointSlices tell routers where the shards are."""

from typing import Any

from tokenpool_api import names
from tokenpool_operator.manifests import metadata
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]


def pool_service(owner: Owner, *, has_tls: bool) -> Raw:
    """Port 80 of the pool's name leads to the routers, with TLS port 443: plain HTTP is not served beside it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata.metadata(owner, names.service_name(owner.name), names.COMPONENT_ROUTER),
        "spec": {
            "type": "ClusterIP",
            "selector": metadata.selector(owner.name, names.COMPONENT_ROUTER),
            "ports": [
                {
                    "name": names.PORT_NAME_API,
                    "port": names.SERVICE_TLS_PORT if has_tls else names.SERVICE_PORT,
                    "targetPort": names.PORT_NAME_API,
                    "protocol": "TCP",
                }
            ],
        },
    }


def shards_service(owner: Owner) -> Raw:
    """Headless, ready shards only."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata.metadata(owner, names.shards_service_name(owner.name), names.COMPONENT_SHARD),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": metadata.selector(owner.name, names.COMPONENT_SHARD),
            "ports": [
                {
                    "name": names.PORT_NAME_API,
                    "port": names.SHARD_API_PORT,
                    "targetPort": names.PORT_NAME_API,
                    "protocol": "TCP",
                }
            ],
        },
    }
