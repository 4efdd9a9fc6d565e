"""The router as users get it: its image, unpacked into the cache. Its Python, its libraries, its compiled parts."""

import json
import subprocess
import tarfile
from pathlib import Path
from typing import IO, Any

from cluster.cache import made_once
from images.build import all_images
from images.programs import ensure

PROGRAM = "/opt/tokenpool/bin/tokenpool-router"


def root() -> Path:
    """The image's files; the image is built first where it is missing."""
    archive = all_images()["router"].archive
    return made_once(f"router-root-{archive.stem}", lambda folder: unpack(archive, folder))


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
