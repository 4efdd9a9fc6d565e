"""How do packages get here without being installed? By apt with lists and a status of its own, then unpacked.

Nothing of the system's package state is read or changed, so neither root nor apt's locks are needed.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

# The machine's own C library goes with its loader; another one beside it would not start.
OF_THE_MACHINE = {"libc6", "libc-bin", "libc6-amd64", "libc6-i386"}


class ProgramError(RuntimeError):
    """A program cannot be had; shown without a traceback."""


def fetch_packages(packages: Sequence[str], root: Path, say: Callable[[str], None]) -> None:
    """Unpack `packages`, and the libraries that they depend on, into `root`.

    Raises:
        ProgramError: no apt, or apt failed.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ProgramError("There is no apt-get here to fetch it with")
    with tempfile.TemporaryDirectory(prefix="tokenpool-apt-") as scratch:
        apt = private_apt(Path(scratch))
        say("package lists")
        run([*apt, "update"])
        wanted = pick_packages(run([*apt, "--simulate", "--no-install-recommends", "install", *packages]), packages)
        say(f"{len(wanted)} packages")
        run([*apt, "download", *wanted], Path(scratch))
        for archive in sorted(Path(scratch).glob("*.deb")):
            run(["dpkg-deb", "--extract", str(archive), str(root)])


def private_apt(scratch: Path) -> list[str]:
    """The apt-get command with its state in `scratch`, and the sources and network settings of the machine."""
    (scratch / "lists" / "partial").mkdir(parents=True)
    (scratch / "archives" / "partial").mkdir(parents=True)
    (scratch / "status").touch()
    settings = {
        "Dir::State": scratch,
        "Dir::State::lists": scratch / "lists",
        "Dir::State::status": scratch / "status",
        "Dir::Cache": scratch,
        "Dir::Cache::archives": scratch / "archives",
        "APT::Sandbox::User": "root",  # as whoever we are: another user may not write to the scratch folder
        "Debug::NoLocking": "true",
        "Acquire::Retries": "3",
    }
    return ["apt-get", "-qq", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]


def pick_packages(simulated: str, asked: Iterable[str]) -> list[str]:
    """`name=version` of what was asked for and of libraries, out of the lines `Inst name (version …` of apt."""
    versions = dict(re.findall(r"^Inst (\S+) \((\S+)", simulated, re.MULTILINE))
    named = set(asked)
    return sorted(f"{name}={version}" for name, version in versions.items() if name in named or is_library(name))


def is_library(name: str) -> bool:
    """Whether a package brings shared libraries that a program could need; perl's modules are for scripts."""
    return name.startswith("lib") and "perl" not in name and name not in OF_THE_MACHINE


def run(command: Sequence[str], folder: Path | None = None) -> str:
    """What the command printed, on either stream.

    Raises:
        ProgramError: it failed; the message ends with its last words.
    """
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"{' '.join(command)} failed:\n{done.stdout.strip()[-2000:]}")
    return done.stdout
