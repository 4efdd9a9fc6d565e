"""The router as users get it: its image, unpacked into the cache. Its Python, its libraries, its compiled parts."""

import json
import shutil
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from cluster.cache import made_once
from images.build import all_images
from images.programs import ensure
from router_bench import compiled, wire

PROGRAM = "/opt/tokenpool/bin/tokenpool-router"
ZSTD = b"\x28\xb5\x2f\xfd"
KEYS, SOURCES = "/tmp/bench/keys", "/tmp/bench/sources"  # noqa: S108 - in the image


def root() -> Path:
    """The image's files, and what the benchmark lays beside them; the image is built first where it is missing."""
    archive = all_images()["router"].archive
    return made_once(f"router-root-{archive.stem}", lambda folder: _fill(archive, folder))


def _fill(archive: Path, folder: Path) -> None:
    unpack(archive, folder)
    keys, sources = folder / KEYS[1:], folder / SOURCES[1:]
    keys.mkdir(parents=True)
    (keys / "bench").write_text(sha256(wire.KEY.encode()).hexdigest())
    for package in compiled.PACKAGES:
        skip = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(compiled.ROOT / package, sources / Path(package).name, ignore=skip)


def unpack(archive: Path, folder: Path) -> None:
    """All layers of an OCI archive, in order."""
    ensure({"zstd": "zstd"})
    with tarfile.open(archive) as image:
        [manifest] = json.load(_file(image, "index.json"))["manifests"]
        for layer in _described(image, manifest["digest"])["layers"]:
            packed = _file(image, _path(layer["digest"])).read()
            unpacker = ["--zstd"] if packed.startswith(ZSTD) else []
            subprocess.run(["tar", *unpacker, "-x", "-C", str(folder)], input=packed, check=True)


def _described(image: tarfile.TarFile, digest: str) -> Any:
    return json.load(_file(image, _path(digest)))


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _file(image: tarfile.TarFile, name: str) -> IO[bytes]:
    found = image.extractfile(name)
    assert found is not None  # noqa: S101 - an archive that we made
    return found
