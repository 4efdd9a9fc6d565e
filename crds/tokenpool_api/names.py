"""Every name that crosses a process boundary: what the operator writes and the router, the engine or a user reads.

A name used by one process only does not belong here.
"""

from typing import Final

GROUP: Final = "tokenpool.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "TokenPool"
PLURAL: Final = "tokenpools"
SINGULAR: Final = "tokenpool"
SHORT_NAME: Final = "tp"

# Labels on everything the operator makes. `POOL` is the one that selectors use.
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_REVISION: Final = f"{GROUP}/revision"
LABEL_ORDINAL: Final = f"{GROUP}/ordinal"
APP_NAME: Final = "tokenpool"
MANAGER: Final = "tokenpool-operator"
COMPONENT_SHARD: Final = "shard"
COMPONENT_ROUTER: Final = "router"

# Ports. API and admin are apart, so that a network policy can open one without the other.
SHARD_API_PORT: Final = 8000
SHARD_ADMIN_PORT: Final = 8001
ROUTER_API_PORT: Final = 8080
ROUTER_ADMIN_PORT: Final = 8081
SERVICE_PORT: Final = 80
SERVICE_TLS_PORT: Final = 443
PORT_NAME_API: Final = "api"
PORT_NAME_ADMIN: Final = "admin"

# Admin paths, the same on shard and router.
PATH_HEALTH: Final = "/healthz"
PATH_READY: Final = "/readyz"
PATH_LOAD: Final = "/load"
PATH_METRICS: Final = "/metrics"

# Fields beyond OpenAI's that the router may add to a request: the answer's tokens so far, and whether every chunk is to
# carry the ids of its tokens (as `token_ids` of its choice). With both, another shard goes on where one was lost.
FIELD_CONTINUE: Final = "continue_token_ids"
FIELD_RETURN_TOKEN_IDS: Final = "return_token_ids"  # noqa: S105
FIELD_TOKEN_IDS: Final = "token_ids"  # noqa: S105

# The one key of the roster's ConfigMap.
ROSTER_KEY: Final = "roster.json"

# HTTP headers of the data path.
HEADER_REQUEST_ID: Final = "x-request-id"
HEADER_SHARD: Final = "x-tokenpool-shard"

# What router and shard tell each other beside the API; the router lets none of it through, in either direction.
# The router asks for the ids of a stream's tokens: each event then has them before it, as a comment line ":12,345".
HEADER_TOKEN_IDS: Final = "x-tokenpool-token-ids"  # noqa: S105
# The shard tells what it counted, and the seed that it drew where the client gave none.
HEADER_PROMPT_TOKENS: Final = "x-tokenpool-prompt-tokens"
HEADER_COMPLETION_TOKENS: Final = "x-tokenpool-completion-tokens"
HEADER_SEED: Final = "x-tokenpool-seed"

# The longest pool name: "<pool>-<revision>-<ordinal>" must stay a label value and a host name (63).
POOL_NAME_MAX_LENGTH: Final = 40
REVISION_LENGTH: Final = 8
MAX_SHARDS: Final = 1000


def service_name(pool: str) -> str:
    """The Service that clients talk to; it selects the pool's routers."""
    return pool


def shards_service_name(pool: str) -> str:
    """The headless Service whose EndpointSlices list the shards; only the router reads it."""
    return f"{pool}-shards"


def router_name(pool: str) -> str:
    """Deployment, service account, role and network policy of the pool's router."""
    return f"{pool}-router"


def roster_name(pool: str) -> str:
    """The ConfigMap in which the operator tells the routers what to do with each shard."""
    return f"{pool}-roster"


def shard_name(pool: str, revision: str, ordinal: int) -> str:
    """One shard pod. The same pool, revision and ordinal always give the same name."""
    return f"{pool}-{revision}-{ordinal}"
