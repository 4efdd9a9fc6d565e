"""Where is the older openai package? In the user's cache, with all that it needs, since it does not fit into .venv."""

import hashlib
import subprocess
import sys
from pathlib import Path

from cluster.cache import cache_folder, made_once
from cluster.progress import step
from models.smollm2 import installer

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "openai-older.txt"


def folder_name() -> str:
    """Another one for every lock and every Python, because it holds compiled modules."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    return f"openai-older-{digest}-py{sys.version_info.major}{sys.version_info.minor}"


def find_older_openai() -> Path | None:
    """The folder to put first on a process's path, if it was fetched."""
    folder = cache_folder() / folder_name()
    return folder if folder.is_dir() else None


def older_openai_directory() -> Path:
    """The same, fetched when it is missing."""
    return made_once(folder_name(), fetch)


def fetch(folder: Path) -> None:
    """Install the hashed lock into `folder`."""
    with step("the older openai client"):
        command = [*installer(), "--no-deps", "--require-hashes", "--target", str(folder), "-r", str(LOCK)]
        subprocess.run(command, check=True)
