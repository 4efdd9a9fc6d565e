"""`python -m tokenpool_router.callers new NAME`: a fresh API key, and what to put into the pool's Secret."""

import argparse
import json
import secrets
import sys
from hashlib import sha256
from typing import Any

from tokenpool_router.callers.caller import WrongCaller, read_caller
from tokenpool_router.waiting import Priority


def main() -> None:
    """The key is shown once and stored nowhere."""
    parser = argparse.ArgumentParser(prog="python -m tokenpool_router.callers", description="API keys of a TokenPool.")
    new = parser.add_subparsers(required=True).add_parser("new", help="make a key for a caller")
    new.add_argument("name", help="the caller's name: letters, digits, -._")
    new.add_argument("--tokens-per-minute", type=int, default=0, help="prompt and answer tokens a minute (0: no limit)")
    new.add_argument("--concurrency", type=int, default=0, help="requests at a time (0: no limit)")
    new.add_argument("--weight", type=float, default=1.0, help="share of a full pool, relative to other callers")
    new.add_argument("--priority", choices=[*Priority], default=Priority.NORMAL, help="who is served before whom")
    new.add_argument("--secret", default="tokenpool-keys", help="name of the Secret")
    found = parser.parse_args()
    key = f"tp-{secrets.token_urlsafe(32)}"
    entry = json.dumps(entry_for(key, found))
    try:
        read_caller(found.name, entry)
    except WrongCaller as error:
        sys.exit(f"error: {error}")
    print(f"key, shown only now:  {key}\n")
    print("a new Secret:")
    print(f"  kubectl create secret generic {found.secret} --from-literal={found.name}='{entry}'\n")
    print("or one more caller in an existing one:")
    patch = json.dumps({"stringData": {found.name: entry}})
    print(f"  kubectl patch secret {found.secret} --patch='{patch}'")


def entry_for(key: str, found: argparse.Namespace) -> dict[str, Any]:
    """What the Secret holds: the key's hash, and the limits that differ from none."""
    entry: dict[str, Any] = {"sha256": [sha256(key.encode()).hexdigest()]}
    limits = {"tokensPerMinute": found.tokens_per_minute, "concurrency": found.concurrency}
    entry |= {name: value for name, value in limits.items() if value}
    if found.weight != 1:
        entry["weight"] = found.weight
    if found.priority != Priority.NORMAL:
        entry["priority"] = str(found.priority)
    return entry


if __name__ == "__main__":
    main()
