"""The router as users get it: its image, unpacked into the cache. Its Python, its libraries, its compiled parts."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import IO, Any

from cluster.cache import made_once
from images.build import all_images
from images.programs import ensure
from router_bench import compiled

PROGRAM = "/opt/tokenpool/bin/tokenpool-router"


def root() -> Path:
    """The image's files; the image is built first where it is missing."""
    archive = all_images()["router"].archive
    return made_once(f"router-root-{archive.stem}", lambda folder: unpack(archive, folder))


def copy_sources(folder: Path) -> None:
    """The packages as they are in the tree, without anything compiled."""
    for package in compiled.PACKAGES:
        skip = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(compiled.ROOT / package, folder / Path(package).name, ignore=skip)


def unpack(archive: Path, folder: Path) -> None:
    """All layers of an OCI archive, in order."""
    ensure({"zstd": "zstd"})
    with tarfile.open(archive) as image:
        [manifest] = json.load(_file(image, "index.json"))["manifests"]
        for layer in _described(image, manifest["digest"])["layers"]:
            packed = _file(image, _path(layer["digest"])).read()
            subprocess.run(["tar", "--zstd", "-x", "-C", str(folder)], input=packed, check=True)


def _described(image: tarfile.TarFile, digest: str) -> Any:
    return json.load(_file(image, _path(digest)))


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _file(image: tarfile.TarFile, name: str) -> IO[bytes]:
    found = image.extractfile(name)
    assert found is not None  # noqa: S101 - an archive that we made
    return found
