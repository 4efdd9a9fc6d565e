"""Which programs can be had, and where is one? A folder of the cache that holds it with its libraries."""

import hashlib
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.cache import made_once
from cluster.progress import step
from programs.debian import ProgramError, fetch_packages, run
from programs.relocated import make_runnable

FORMAT = 1  # raise it when folders are made differently, so that old ones are not used
SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/local/sbin"  # a user's PATH often lacks them


@dataclass(frozen=True)
class Recipe:
    """The packages that bring a program, its path in them, and the argument that makes it say its version."""

    packages: tuple[str, ...]
    path: str
    version_argument: str


RECIPES: Mapping[str, Recipe] = {
    # Debian's redis-server is a link to a program in redis-tools, which looks at the name it is called by.
    "redis-server": Recipe(("redis-server", "redis-tools"), "usr/bin/redis-server", "--version"),
    "haproxy": Recipe(("haproxy",), "usr/sbin/haproxy", "-v"),
    "nginx": Recipe(("nginx",), "usr/sbin/nginx", "-v"),
}


def program(name: str) -> Path:
    """Path of the runnable program; fetched at the first call, seconds.

    Where packages cannot be had (no apt, or no way to its mirror), one that is installed already will do.

    Raises:
        ProgramError: neither; the message says what to install.
    """
    try:
        return made_once(folder_name(name), maker(name)) / name
    except ProgramError as error:
        return installed(name, error)


def installed(name: str, why_not_fetched: ProgramError) -> Path:
    """The program on the PATH or in the system's folders."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_FOLDERS)
    if found is None:
        packages = ", ".join(RECIPES[name].packages)
        raise ProgramError(f"{name} is not here and could not be fetched. Install it ({packages}). {why_not_fetched}")
    return Path(found)


def folder_name(name: str) -> str:
    """Another one for every recipe, processor and release of the distribution: libraries fit no other."""
    told = (FORMAT, RECIPES[name], platform.machine(), release())
    return f"program-{name}-{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"


def release() -> str:
    """The distribution and its version, such as debian 12; empty where nothing says so."""
    try:
        described = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{described['ID']} {described.get('VERSION_ID', described.get('VERSION_CODENAME', ''))}"


def maker(name: str) -> Callable[[Path], None]:
    """What fills the empty folder of that program."""
    recipe = RECIPES[name]

    def make(folder: Path) -> None:
        with step(f"fetching {name} and its libraries (once per machine)") as current:
            root = folder / "root"
            fetch_packages(recipe.packages, root, current.detail)
            make_runnable(folder, name, root / recipe.path, root)
            shutil.rmtree(root)
        said = version_of(folder / name, recipe.version_argument)
        (folder / "VERSION").write_text(said)

    return make


def version_of(path: Path, argument: str) -> str:
    """What the program says; it proves that it runs here.

    Raises:
        ProgramError: it does not run.
    """
    return run([str(path), argument])
