"""The revision of a shard: a short hash of everything that makes it what it is.

It covers the rendered pod spec and nothing else, so neither a replica count nor a new operator changes it. The golden
test pins the value: a change of it replaces every shard of every user.
"""

import hashlib
import json
from typing import Any

from tokenpool_api.names import REVISION_LENGTH


def revision_of(pod_spec: dict[str, Any]) -> str:
    """Eight hexadecimal digits; equal specs give equal digits whatever the order of their keys."""
    text = json.dumps(pod_spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:REVISION_LENGTH]
