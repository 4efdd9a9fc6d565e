"""Makes machine code of the router's hot path: `python compile_router.py FOLDER`, where FOLDER holds the packages.

The sources stay what they are, and stay in place: Python takes an extension module before a source file of the same
name. Only what a request passes through is compiled. Needs mypy (for mypyc), setuptools and a C compiler; a router
that was not compiled works the same, at more than twice the CPU time for each request.
"""

import os
import subprocess
import sys
from pathlib import Path

PACKAGE = "tokenpool_router"
# One line each: what a request passes through, from a client's bytes to the shard and back.
ROOMS = ("http", "journey", "sharding", "waiting", "callers")
# mypyc knows no subclass of KeyError and no enumeration; folder and __main__ are no part of a request's path.
LEFT_OUT = ("__init__.py", "__main__.py", "folder.py", "policy.py", "shard.py")


def sources(folder: Path) -> list[str]:
    """The modules to compile, relative to the folder."""
    found = [path for room in ROOMS for path in sorted((folder / PACKAGE / room).glob("*.py"))]
    return [str(path.relative_to(folder)) for path in found if path.name not in LEFT_OUT]


def compile_in(folder: Path) -> None:
    """Put the compiled modules beside their sources. Raises CalledProcessError."""
    environment = {**os.environ, "MYPYPATH": str(folder), "MYPYC_OPT_LEVEL": "3"}
    # Libraries need not be installed where it is compiled; types are checked elsewhere.
    flags = ["--config-file", os.devnull, "--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypyc", *flags, *sources(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        print((done.stdout + done.stderr)[-4000:], file=sys.stderr)
        done.check_returncode()
    for leftover in ("build", ".mypy_cache"):
        subprocess.run(["rm", "-rf", str(folder / leftover)], check=True)  # noqa: S603, S607


if __name__ == "__main__":
    compile_in(Path(sys.argv[1]).resolve())
