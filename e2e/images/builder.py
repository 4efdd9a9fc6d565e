"""Who builds? Docker where an engine answers, else buildah. The rest of the package knows only this protocol."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Build:
    """One image to build from a Dockerfile; `secrets` maps an id to the file mounted under it."""

    ref: str
    context: Path
    dockerfile: Path
    target: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)

    def options(self) -> list[str]:
        """Command-line options, which docker and buildah spell alike."""
        options = ["-f", str(self.dockerfile), "-t", self.ref]
        options += ["--target", self.target] if self.target else []
        for name, value in self.arguments.items():
            options += ["--build-arg", f"{name}={value}"]
        for name, path in self.secrets.items():
            options += ["--secret", f"id={name},src={path}"]
        return [*options, str(self.context)]


class Builder(Protocol):
    """A store of images, and what can be done with it."""

    def prepare(self) -> None:
        """Install what is missing."""

    def has(self, ref: str) -> bool:
        """Whether an image is in the store."""

    def import_root(self, root: Path, ref: str) -> None:
        """Make an image of one layer from a directory."""

    def build(self, build: Build) -> None:
        """Build from a Dockerfile; unchanged steps come from the store."""

    def export(self, ref: str, archive: Path) -> None:
        """Write an image as an archive that containerd imports."""

    def tidy(self, keep: Collection[str]) -> None:
        """Bound the store: of our images only those in `keep` stay."""


def stale(refs: Collection[str], keep: Collection[str]) -> list[str]:
    """Those of our images that nobody needs any more."""
    return sorted(ref for ref in refs if ref.startswith("localhost/tokenpool-") and ref not in keep)
