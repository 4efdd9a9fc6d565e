"""Everything of a pool except its shards, in the order in which it must appear: accounts before what runs as them."""

from typing import Any

from tokenpool_api.spec import TokenPoolSpec
from tokenpool_operator.manifests import accounts, disruption, network, router, services
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]


def standing_objects(
    owner: Owner, spec: TokenPoolSpec, desired: int, *, router_image: str, hf_endpoint: str | None
) -> tuple[Raw, ...]:
    """All objects that a pool has exactly once."""
    return (
        accounts.shards_service_account(owner),
        accounts.router_service_account(owner),
        router.router_role(owner),
        router.router_role_binding(owner),
        network.shards_policy(owner, spec.model, hf_endpoint),
        network.router_policy(owner, has_redis=spec.router.redis is not None),
        services.shards_service(owner),
        services.pool_service(owner, has_tls=spec.router.tls is not None),
        disruption.shards_disruption_budget(owner, desired),
        router.router_deployment(owner, spec, router_image),
    )
