"""What a pass may do to the cluster, as values. Kinds are named as in YAML; who carries them out is no matter here."""

from dataclasses import dataclass
from typing import Any, TypeAlias

Raw = dict[str, Any]


@dataclass(frozen=True)
class Delete:
    """Remove exactly the object that was seen."""

    kind: str
    name: str
    uid: str
    why: str

    def __str__(self) -> str:
        return f"delete {self.kind} {self.name}: {self.why}"


@dataclass(frozen=True)
class Create:
    """Make an object that is never changed afterwards."""

    body: Raw

    def __str__(self) -> str:
        return f"create {self.body['kind']} {self.body['metadata']['name']}"


@dataclass(frozen=True)
class Apply:
    """Make the object so. `uid` is of the one that was seen; None: there was none of ours."""

    body: Raw
    uid: str | None

    def __str__(self) -> str:
        return f"apply {self.body['kind']} {self.body['metadata']['name']}"


Action: TypeAlias = Delete | Create | Apply
