"""The sandbox image as a docker-archive: one layer with one static program. It needs no image builder."""

import hashlib
import io
import json
import tarfile
from pathlib import Path


def write_pause_archive(program: Path, reference: str, archive: Path) -> None:
    """Pack `program` as /pause into an image of that name."""
    layer = _tar({"pause": program.read_bytes()}, mode=0o755)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, config_name: config, "manifest.json": json.dumps(manifest).encode()}
    archive.write_bytes(_tar(files, mode=0o644))


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
