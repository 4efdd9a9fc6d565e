"""How does a program run from a folder of its own? With a start script that shows the loader its libraries."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from programs.debian import ProgramError, run

# exec, so that the process that was started is the program and a signal reaches it.
START = """#!/bin/sh
LD_LIBRARY_PATH="${{0%/*}}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "${{0%/*}}/bin/{name}" "$@"
"""


def make_runnable(folder: Path, name: str, binary: Path, root: Path) -> None:
    """Into `folder`: bin/NAME, lib/ with what it needs out of `root`, and the script NAME that starts it."""
    for inner in ("bin", "lib"):
        (folder / inner).mkdir()
    for soname, path in needed_libraries(binary, root).items():
        shutil.copyfile(path, folder / "lib" / soname)
    shutil.copyfile(binary, folder / "bin" / name)
    (folder / "bin" / name).chmod(0o755)
    (folder / name).write_text(START.format(name=name))
    (folder / name).chmod(0o755)


def needed_libraries(binary: Path, root: Path) -> Mapping[str, Path]:
    """The shared libraries in `root` that the loader takes for the binary, by the names it asks for.

    Raises:
        ProgramError: one is missing.
    """
    folders = sorted({str(path.parent) for path in root.rglob("*.so*")})
    told = run(["env", f"LD_LIBRARY_PATH={':'.join(folders)}", "ldd", str(binary)])
    missing = re.findall(r"^\s*(\S+) => not found", told, re.MULTILINE)
    if missing:
        raise ProgramError(f"{binary.name} needs {', '.join(missing)}, which its packages do not bring")
    found = re.findall(r"^\s*(\S+) => (/\S+)", told, re.MULTILINE)
    return {soname: Path(path) for soname, path in found if Path(path).is_relative_to(root)}
