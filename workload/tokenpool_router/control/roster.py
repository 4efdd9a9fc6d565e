"""What does the operator's ConfigMap say? Pure; only Kubernetes needs it, and the library that checks it is heavy."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tokenpool_api import names
from tokenpool_api.wire import Roster


def read_roster(config_map: Mapping[str, Any] | None) -> Roster | None:
    """The roster in its ConfigMap, None where there is none. Raises ValueError when it cannot be read."""
    text = ((config_map or {}).get("data") or {}).get(names.ROSTER_KEY)
    if text is None:
        return None
    try:
        return Roster.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
