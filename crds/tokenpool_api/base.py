"""What all parts of a TokenPool's spec are made of."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


def rules(*validations: tuple[str, str]) -> dict[str, Any]:
    """CEL rules of one object, as (rule, message) pairs. A rule sits on the smallest object that it needs."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in validations]}


class Spec(BaseModel):
    """Base of all spec objects: camelCase in YAML, unknown fields refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")
