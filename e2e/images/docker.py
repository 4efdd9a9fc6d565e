"""Images by a Docker engine."""

import subprocess
from collections.abc import Collection
from pathlib import Path

from images.builder import Build, stale
from images.programs import run


class Docker:
    """The engine that the docker command reaches. BuildKit's own cache is the engine's to bound."""

    def prepare(self) -> None:
        """Nothing: it answered."""

    def has(self, ref: str) -> bool:
        """Whether the engine has an image."""
        return bool(run(["docker", "images", "-q", ref]).strip())

    def import_root(self, root: Path, ref: str) -> None:
        """Pipe the directory into the engine."""
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run(["docker", "import", "-", ref], stdin=tar.stdout, capture_output=True, check=False)
        if tar.returncode or done.returncode:
            raise RuntimeError(f"docker import of {root} failed: {done.stderr.decode()}")

    def build(self, build: Build) -> None:
        """`docker build`; secrets need BuildKit."""
        run(["docker", "build", *build.options()], {"DOCKER_BUILDKIT": "1"})

    def export(self, ref: str, archive: Path) -> None:
        """`docker save`."""
        run(["docker", "save", "-o", str(archive), ref])

    def tidy(self, keep: Collection[str]) -> None:
        """Drop our older images."""
        listed = run(["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "localhost/tokenpool-*"])
        for ref in stale(listed.split(), keep):
            run(["docker", "rmi", ref])
