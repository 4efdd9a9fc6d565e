"""The ways to pick a shard."""

from enum import StrEnum


class Policy(StrEnum):
    """Each takes weight and speed into account; all but RoundRobin the load too."""

    LEAST_TOKENS = "LeastTokens"
    """The fewest outstanding tokens, with this request's, for its pace."""
    LEAST_CONNECTIONS = "LeastConnections"
    """The fewest requests for its pace."""
    ROUND_ROBIN = "RoundRobin"
    """In turn, in proportion to pace."""
    POWER_OF_TWO = "PowerOfTwo"
    """The better of two drawn at random: for routers that do not know of each other."""
    PREFIX_AFFINITY = "PrefixAffinity"
    """LeastTokens, with the tokens that a shard has computed already left out of the reckoning."""
