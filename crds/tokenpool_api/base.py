"""What all parts of a TokenPool's spec are made of."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

# Secrets may have dots in their names, claims too.
DNS_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{DNS_SUBDOMAIN}$")]


def rules(*validations: tuple[str, str]) -> dict[str, Any]:
    """CEL rules of one object, as (rule, message) pairs. A rule sits on the smallest object that it needs."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in validations]}


class Spec(BaseModel):
    """Base of all spec objects: camelCase in YAML, unknown fields refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class SecretName(Spec):
    """A Secret in the pool's namespace."""

    name: ObjectName = Field(description="Name of the Secret.")


class SecretKey(SecretName):
    """One key of a Secret in the pool's namespace."""

    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        description="Key inside the Secret whose value is used."
    )
