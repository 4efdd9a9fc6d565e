"""Images by buildah, without any engine; needs root. Its store is a folder of our own in the cache."""

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from images.builder import Build, stale
from images.programs import ensure, run

STORE_LIMIT_BYTES = 12 * 2**30


class Buildah:
    """buildah on a store of its own. It picks overlay where the kernel allows and vfs elsewhere."""

    def __init__(self, store: Path) -> None:
        self.store = store
        # Mount counts must not outlive a reboot, so they lie in /run; one set for each store.
        state = Path("/run/tokenpool") / hashlib.sha256(str(store).encode()).hexdigest()[:8]
        self.command = ["buildah", "--root", str(store), "--runroot", str(state)]

    def prepare(self) -> None:
        """Get buildah from Debian."""
        ensure({"buildah": "buildah"})

    def run(self, *arguments: str) -> str:
        """One buildah command. chroot isolation: no namespaces, so that it also runs inside a container."""
        return run([*self.command, *arguments], {"BUILDAH_ISOLATION": "chroot"})

    def has(self, ref: str) -> bool:
        """Whether the store has an image."""
        return ref in self.refs()

    def refs(self) -> list[str]:
        """Every named image of the store."""
        return self.run("images", "--format", "{{.Name}}:{{.Tag}}").split()

    def import_root(self, root: Path, ref: str) -> None:
        """Add the directory to an empty image."""
        container = self.run("from", "scratch").strip()
        try:
            self.run("add", "-q", container, f"{root}/", "/")
            self.run("commit", "-q", container, ref)
        finally:
            self.run("rm", container)

    def build(self, build: Build) -> None:
        """`buildah build` with its layer cache."""
        self.run("build", "-q", "--layers", *build.options())

    def export(self, ref: str, archive: Path) -> None:
        """An OCI archive with zstd layers: a third of a docker-archive in size, half in containerd's time to import."""
        self.run("push", "-q", "--compression-format", "zstd", ref, f"oci-archive:{archive}:{ref}")

    def tidy(self, keep: Collection[str]) -> None:
        """Drop our older images; over the limit drop the cached steps too."""
        for ref in stale(self.refs(), keep):
            self.run("rmi", ref)
        if size_bytes(self.store) > STORE_LIMIT_BYTES:
            self.run("rmi", "--prune", "--force")


def size_bytes(folder: Path) -> int:
    """What a folder takes on disk, mounts left out of account."""
    total = 0
    for directory, _, names in os.walk(folder):
        total += sum(os.lstat(os.path.join(directory, name)).st_blocks * 512 for name in names)
    return total
