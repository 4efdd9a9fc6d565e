"""One caller as the pool's Secret tells it: one file, its name the caller's, its text hashes or a JSON object."""

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tokenpool_router.waiting import Priority

# A caller's name becomes a metric's label; the Secret's own rule for names of files is the same.
NAME: Final = re.compile(r"[-._a-zA-Z0-9]{1,63}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
PREFIX: Final = "sha256:"
FIELDS: Final = frozenset({"sha256", "tokensPerMinute", "concurrency", "weight", "priority"})
MOST_DIGESTS: Final = 16
MOST_WEIGHT: Final = 1000.0
MOST_TOKENS_PER_MINUTE: Final = 1_000_000_000
MOST_CONCURRENCY: Final = 1_000_000


class WrongCaller(ValueError):
    """A file that tells no caller; the message names the file and what to do."""


@dataclass(frozen=True)
class Caller:
    """`sha256` are hex digests of its keys, several while they are changed; 0 is no limit."""

    name: str
    sha256: tuple[str, ...]
    tokens_per_minute: int = 0
    concurrency: int = 0
    weight: float = 1.0
    priority: Priority = Priority.NORMAL


def read_caller(name: str, text: str) -> Caller:
    """Raises WrongCaller."""
    if not NAME.fullmatch(name):
        raise WrongCaller(f"{name!r}: a caller's name must be 1 to 63 of the characters -._a-zA-Z0-9")
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Caller(name, _digests(name, [line.strip() for line in stripped.splitlines() if line.strip()]))
    try:
        body: dict[str, Any] = orjson.loads(stripped)
    except orjson.JSONDecodeError as error:
        raise WrongCaller(f"{name}: not valid JSON: {error}") from error
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise WrongCaller(f"{name}: unknown field {unknown[0]!r}; known are {', '.join(sorted(FIELDS))}")
    return _from_fields(name, body)


def _from_fields(name: str, body: dict[str, Any]) -> Caller:
    digests = body.get("sha256")
    weight = body.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= MOST_WEIGHT:
        raise WrongCaller(f"{name}: weight must be a number above 0, at most {MOST_WEIGHT:.0f}")
    try:
        priority = Priority(body.get("priority", Priority.NORMAL))
    except ValueError:
        raise WrongCaller(f"{name}: priority must be one of {', '.join(Priority)}") from None
    return Caller(
        name,
        _digests(name, [digests] if isinstance(digests, str) else digests),
        _whole(name, body, "tokensPerMinute", MOST_TOKENS_PER_MINUTE),
        _whole(name, body, "concurrency", MOST_CONCURRENCY),
        float(weight),
        priority,
    )


def _whole(name: str, body: dict[str, Any], field: str, most: int) -> int:
    value = body.get(field, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WrongCaller(f"{name}: {field} must be a whole number from 0 (no limit) to {most}")
    return value


def _digests(name: str, found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not 1 <= len(found) <= MOST_DIGESTS:
        raise WrongCaller(f"{name}: sha256 must hold 1 to {MOST_DIGESTS} hashes of keys")
    digests = tuple(str(one).lower().removeprefix(PREFIX) for one in found)
    if not all(map(DIGEST.fullmatch, digests)):
        raise WrongCaller(
            f"{name}: sha256 must be 64 hexadecimal digits, the SHA-256 of a key and never the key itself"
        )
    return digests


def from_message(entry: dict[str, Any]) -> Caller:
    """As the control process sends it."""
    return Caller(
        entry["name"],
        tuple(entry["sha256"]),
        entry["tokens_per_minute"],
        entry["concurrency"],
        entry["weight"],
        Priority(entry["priority"]),
    )


def to_message(caller: Caller) -> dict[str, Any]:
    """For a worker."""
    return {
        "name": caller.name,
        "sha256": list(caller.sha256),
        "tokens_per_minute": caller.tokens_per_minute,
        "concurrency": caller.concurrency,
        "weight": caller.weight,
        "priority": caller.priority.value,
    }
