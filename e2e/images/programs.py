"""How are programs run, and where do missing ones come from? Output is shown only when one fails."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Standard output of `command`, with `environment` on top of ours.

    Raises:
        RuntimeError: it failed; the message ends with the last lines it wrote.
    """
    done = subprocess.run(
        command, env=os.environ | dict(environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def ensure(packages: Mapping[str, str]) -> None:
    """Install the Debian package of each program that is missing; `packages` maps program → package.

    Raises:
        RuntimeError: something is missing and this is no Debian with root.
    """
    missing = {program: package for program, package in packages.items() if not find(program)}
    if not missing:
        return
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise RuntimeError(
            f"missing: {', '.join(sorted(missing))}. Start a Docker engine, or run as root on Debian or Ubuntu,"
            f" or install the packages {', '.join(sorted(set(missing.values())))}"
        )
    # Others may be installing at the same time: wait for the lock.
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600"]
    install = [*apt, "install", "--no-install-recommends", *sorted(set(missing.values()))]
    environment = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        run(install, environment)
    except RuntimeError:  # the package lists are absent or old
        run([*apt, "update"], environment)
        run(install, environment)


def find(program: str) -> str | None:
    """Path of a program or of a file that a package brings; a user's PATH often lacks sbin."""
    if program.startswith("/"):
        return program if os.path.exists(program) else None
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
