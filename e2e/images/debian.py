"""How does a Debian root come about where no image can be pulled? By debootstrap, from the mirror that apt here uses."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from images.programs import ensure, run

SUITE = "forky"  # the first with a Python torch new enough
DEFAULT_MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# An older debootstrap knows no script by the suite's name; all of Debian's share this one.
SCRIPT = "/usr/share/debootstrap/scripts/sid"
SCAFFOLD = ("etc/apt/apt.conf.d/99build", "etc/resolv.conf", "etc/dpkg/dpkg.cfg.d/build", "usr/sbin/policy-rc.d")
UNWANTED = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian")


def prepare() -> None:
    """Get debootstrap and Debian's keys."""
    ensure({"debootstrap": "debootstrap", KEYRING: "debian-archive-keyring"})


def make_root(root: Path, packages: Sequence[str]) -> None:
    """The smallest Debian with `packages`, documentation left out."""
    command = [find_debootstrap(), "--variant=minbase", f"--keyring={KEYRING}", f"--include={','.join(packages)}"]
    run([*command, SUITE, str(root), mirror(), SCRIPT], {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"})
    for name in UNWANTED:
        shutil.rmtree(root / name, ignore_errors=True)


def find_debootstrap() -> str:
    """Its path; /usr/sbin is not on everybody's."""
    return shutil.which("debootstrap") or "/usr/sbin/debootstrap"


def mirror() -> str:
    """The Debian mirror that apt on this machine is configured with, or Debian's public one."""
    listed = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    return pick_mirror(listed.split())


def pick_mirror(addresses: Sequence[str]) -> str:
    """The first that serves Debian itself rather than its security archive or somebody's packages."""
    bare = (address.rstrip("/") for address in addresses)
    return next((address for address in bare if re.fullmatch(r"https?://\S+/debian", address)), DEFAULT_MIRROR)


def install(root: Path, packages: Sequence[str]) -> None:
    """Install packages into a root with the network settings of this machine's apt; the settings do not stay."""
    put_scaffold(root)
    try:
        inside(root, "apt-get", "-q", "update")
        inside(root, "apt-get", "-q", "-y", "install", "--no-install-recommends", *packages)
    finally:
        for name in SCAFFOLD:
            (root / name).unlink(missing_ok=True)


def put_scaffold(root: Path) -> None:
    """What an installation needs for the time that it lasts."""
    host = run(["apt-config", "dump", "--format", '%F "%v";%n', "Acquire::http", "Acquire::https"])
    # A testing suite's snapshot may be older than the date its Release file promises; its signature still counts.
    conf, resolver, dpkg, services = (root / name for name in SCAFFOLD)
    conf.write_text(host + 'Acquire::Check-Valid-Until "false";\n')
    if Path("/etc/resolv.conf").is_file():
        resolver.unlink(missing_ok=True)
        shutil.copyfile("/etc/resolv.conf", resolver)
    dpkg.write_text("".join(f"path-exclude=/{name}/*\n" for name in UNWANTED))
    services.write_text("#!/bin/sh\nexit 101\n")  # no service starts here
    services.chmod(0o755)


def inside(root: Path, *command: str) -> str:
    """Run a command in the root with /proc, in namespaces that take every mount away with them."""
    shell = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root}/proc", "chroot", str(root)]
    environment = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "PATH": PATH}
    return run([*shell, *command], environment)


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def drop_lists(root: Path) -> None:
    """Remove what apt keeps only for its next run."""
    for name in ("var/lib/apt/lists", "var/cache/apt", "var/log/apt"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
