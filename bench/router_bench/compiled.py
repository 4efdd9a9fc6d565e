"""Where is the compiled router? In the user's cache, under a hash of its sources; made as the image makes it."""

import shutil
import subprocess
import sys
from pathlib import Path

from cluster.cache import made_once
from cluster.progress import step
from images.recipes import digest, files_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("workload/tokenpool_router", "crds/tokenpool_api", "kube/tokenpool_kube")
SCRIPT = "workload/compile_router.py"


def folder() -> Path:
    """The packages, the router's hot path compiled for this Python."""
    key = digest({"python": sys.version}, files_of((*PACKAGES, SCRIPT), ROOT), ROOT)
    return made_once(f"router-compiled-{key}", _fill)


def _fill(target: Path) -> None:
    for package in PACKAGES:
        skip = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / package, target / Path(package).name, ignore=skip)
    with step("compiling the router's hot path"):
        subprocess.run([sys.executable, str(ROOT / SCRIPT), str(target)], check=True)


if __name__ == "__main__":
    print(folder())
