"""What one router publishes about itself, as bytes and back. Whoever writes to Redis may write garbage: all is checked.

Pure; knows nothing of Redis.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

Pair = tuple[int, int]

MOST_SHARDS: Final = 10_000
MOST_CALLERS: Final = 4_096
MOST_NAME_CHARACTERS: Final = 253  # a Kubernetes name
MOST_BYTES: Final = 1 << 20
MOST_NUMBER: Final = 1 << 52  # exact in every JSON; 64 routers of it still fit into the gauges' 63 bits


class Unreadable(ValueError):
    """Somebody else wrote this, or a router of another time."""


@dataclass(frozen=True)
class OwnNumbers:
    """This router's part: shard id -> (outstanding tokens, requests), caller -> (tokens ever used, requests in flight).

    Tokens ever used only rise; where they fall all the same, a counter began anew.
    """

    shards: Mapping[str, Pair] = field(default_factory=dict)
    callers: Mapping[str, Pair] = field(default_factory=dict)

    def is_busy(self) -> bool:
        """Whether any request is under way."""
        return any(requests for _, requests in [*self.shards.values(), *self.callers.values()])


@dataclass(frozen=True)
class Published:
    """One router's numbers as another one reads them; another `born` means that its totals began anew."""

    born: str
    numbers: OwnNumbers


def encode(numbers: OwnNumbers, born: str) -> bytes:
    """At most MOST_BYTES: zeros go unsaid, and where there is too much to say, the largest numbers are said."""
    shards, callers = _largest(numbers.shards, MOST_SHARDS), _largest(numbers.callers, MOST_CALLERS)
    while True:
        body = orjson.dumps({"born": born, "shards": dict(shards), "callers": dict(callers)})
        if len(body) <= MOST_BYTES:
            return body
        shards, callers = shards[: len(shards) // 2], callers[: len(callers) // 2]


def decode(body: bytes) -> Published:
    """Read what `encode` wrote.

    Raises:
        Unreadable: it is something else, or out of bounds.
    """
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unreadable("no JSON") from error
    if not isinstance(said, dict) or not isinstance(said.get("born"), str) or not 0 < len(said["born"]) <= 64:
        raise Unreadable("no numbers of a router")
    numbers = OwnNumbers(_pairs(said.get("shards"), MOST_SHARDS), _pairs(said.get("callers"), MOST_CALLERS))
    return Published(said["born"], numbers)


def _largest(pairs: Mapping[str, Pair], most: int) -> list[tuple[str, Pair]]:
    said = [
        (name, (min(tokens, MOST_NUMBER), min(requests, MOST_NUMBER)))
        for name, (tokens, requests) in pairs.items()
        if tokens or requests
    ]
    return said if len(said) <= most // 2 else sorted(said, key=lambda item: item[1], reverse=True)[:most]


def _pairs(value: Any, most: int) -> dict[str, Pair]:
    if not isinstance(value, dict) or len(value) > most:
        raise Unreadable("a table is missing or too long")
    return {_name(name): _pair(pair) for name, pair in value.items()}


def _name(name: str) -> str:
    if not 0 < len(name) <= MOST_NAME_CHARACTERS:
        raise Unreadable("a name's length")
    return name


def _pair(value: Any) -> Pair:
    if not isinstance(value, list) or len(value) != 2 or not all(_is_count(number) for number in value):
        raise Unreadable("not two counts")
    return value[0], value[1]


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= MOST_NUMBER
