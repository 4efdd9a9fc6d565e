"""What pods need of the model's files."""

from pathlib import Path

from models.smollm2 import make_readable


def test_another_user_may_read_the_files_and_not_write_them(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir(mode=0o700)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "model.safetensors").chmod(0o600)
    make_readable(tmp_path)
    modes = [oct(path.stat().st_mode & 0o777) for path in (folder, folder / "model.safetensors")]
    assert modes == ["0o755", "0o644"]
