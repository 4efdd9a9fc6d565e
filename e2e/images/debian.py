"""How does a Debian root come about where no image can be pulled? By debootstrap, from the mirror that apt uses."""

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
HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Files of an installation that are this machine's business and must not stay in an image.
SCAFFOLD = (
    "etc/apt/sources.list",
    "etc/apt/apt.conf.d/99build",
    "etc/apt/build-certificates.pem",
    "etc/resolv.conf",
    "etc/hostname",
    "etc/dpkg/dpkg.cfg.d/build",
    "usr/sbin/policy-rc.d",
)
UNWANTED = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian")


def prepare() -> None:
    """Get debootstrap and Debian's keys."""
    ensure({"debootstrap": "debootstrap", KEYRING: "debian-archive-keyring"})


def make_root(root: Path, packages: Sequence[str]) -> None:
    """The smallest Debian with `packages`, documentation left out."""
    command = [find_debootstrap(), "--variant=minbase", f"--keyring={KEYRING}", f"--include={','.join(packages)}"]
    run([*command, SUITE, str(root), mirror(), SCRIPT], {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"})
    remove_scaffold(root)
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
    try:
        put_scaffold(root)
        inside(root, "apt-get", "-q", "update")
        inside(root, "apt-get", "-q", "-y", "install", "--no-install-recommends", *packages)
    finally:
        remove_scaffold(root)


def put_scaffold(root: Path) -> None:
    """What an installation needs for the time that it lasts."""
    settings = run(["apt-config", "dump", "--format", '%F "%v";%n', "Acquire::http", "Acquire::https"])
    # A testing suite's snapshot may be older than the date its Release file promises; its signature still counts.
    settings += 'Acquire::Check-Valid-Until "false";\n'
    if HOST_CERTIFICATES.is_file():
        shutil.copyfile(HOST_CERTIFICATES, root / "etc/apt/build-certificates.pem")
        settings += 'Acquire::https::CaInfo "/etc/apt/build-certificates.pem";\n'
    if Path("/etc/resolv.conf").is_file():
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/apt/apt.conf.d/99build").write_text(settings)
    (root / "etc/apt/sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
    (root / "etc/dpkg/dpkg.cfg.d/build").write_text("".join(f"path-exclude=/{name}/*\n" for name in UNWANTED))
    services = root / "usr/sbin/policy-rc.d"
    services.write_text("#!/bin/sh\nexit 101\n")  # no service starts here
    services.chmod(0o755)


def remove_scaffold(root: Path) -> None:
    """Take it away again; debootstrap leaves some of it too."""
    for name in SCAFFOLD:
        (root / name).unlink(missing_ok=True)


def inside(root: Path, *command: str) -> str:
    """Run a command in the root with /proc, in namespaces that take every mount away with them."""
    shell = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root}/proc", "chroot", str(root)]
    environment = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "PATH": SEARCH_PATH}
    return run([*shell, *command], environment)


def drop_leftovers(root: Path) -> None:
    """Empty what apt keeps only for its next run, and what scripts of packages forgot."""
    for name in ("var/lib/apt/lists", "var/cache/apt", "var/log/apt", "tmp"):
        mode = (root / name).stat().st_mode
        shutil.rmtree(root / name)
        (root / name).mkdir()
        (root / name).chmod(mode)
