"""What is made once per machine and kept: folders in the user's cache, complete or absent, made by one at a time."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.progress import step


def cache_folder() -> Path:
    """The project's folder in the user's cache; it need not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenpool"


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path`. The kernel lets go of it when the process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another process: {what}"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The cached folder `name`. When it is missing, `make` fills an empty one, which gets the name only when whole."""
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    with locked(cache_folder() / f"{name}.lock", name):
        if not folder.is_dir():
            partial = cache_folder() / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed; the lock says it is nobody's
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder
