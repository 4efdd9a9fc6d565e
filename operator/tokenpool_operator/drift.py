"""Whether a live object still is what we would apply. Pure.

Two looks, because each alone is blind: a hash of what was last applied sees fields that we no longer send, a comparison
with the live object sees what others changed. Without both, either drift stays or a settled pool causes writes.
"""

import hashlib
import json
from decimal import Decimal
from typing import Any

from tokenpool_api.names import GROUP

Raw = dict[str, Any]

ANNOTATION = f"{GROUP}/applied"
SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def stamped(body: Raw) -> Raw:
    """The object with the hash of itself in an annotation."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    meta = body["metadata"]
    return body | {"metadata": meta | {"annotations": {**meta.get("annotations", {}), ANNOTATION: digest}}}


def is_current(wanted: Raw, live: Raw) -> bool:
    """Whether applying `wanted` (stamped) would change nothing that is ours."""
    return _contains(live, wanted)


def _contains(live: Any, wanted: Any) -> bool:
    """Whether every field of `wanted` is in `live` with the same value. Fields of others and defaults do not matter."""
    if live is None and wanted in ({}, []):
        # The API server leaves out what is empty.
        return True
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        present = live or []
        return len(present) == len(wanted) and all(map(_contains, present, wanted))
    return bool(live == wanted or _same_quantity(live, wanted))


def _same_quantity(one: Any, other: Any) -> bool:
    """The API server writes 1000m as 1; that is no drift."""
    first, second = _quantity(one), _quantity(other)
    return first is not None and first == second


def _quantity(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    suffix = next((known for known in sorted(SUFFIXES, key=len, reverse=True) if text.endswith(known)), "")
    try:
        return Decimal(text.removesuffix(suffix)) * SUFFIXES.get(suffix, Decimal(1))
    except ArithmeticError:
        # No number, or one that none could be: a hash may look like 70912e6867458331.
        return None
