"""Reads callers from a Secret that is mounted as a folder: one file a caller. The only room here that touches files."""

from pathlib import Path
from typing import Final

from tokenpool_router.callers.caller import Caller, WrongCaller, read_caller

MOST_CALLERS: Final = 1000
MOST_BYTES: Final = 16 << 10


def read_callers(folder: str) -> tuple[tuple[Caller, ...], tuple[str, ...]]:
    """The callers, and what is wrong with files that tell none. An empty folder, or none, is a door closed to all."""
    callers: list[Caller] = []
    errors: list[str] = []
    for path in _files(folder):
        try:
            if path.stat().st_size > MOST_BYTES:
                raise WrongCaller(f"{path.name}: larger than {MOST_BYTES} bytes")
            callers.append(read_caller(path.name, path.read_text()))
        except (WrongCaller, OSError, UnicodeDecodeError) as error:
            errors.append(str(error))
    if len(callers) > MOST_CALLERS:
        errors.append(f"{len(callers)} callers; only the first {MOST_CALLERS} by name are known")
    return tuple(callers[:MOST_CALLERS]), tuple(errors)


def _files(folder: str) -> list[Path]:
    """Kubernetes keeps the present state behind links whose names begin with two dots."""
    try:
        return sorted(path for path in Path(folder).iterdir() if not path.name.startswith(".") and path.is_file())
    except OSError:
        return []
