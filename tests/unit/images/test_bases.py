"""Where bases come from, and what is taken out of the one with torch."""

from pathlib import Path

import pytest

from images.bases import choose_kind, references, slim
from images.debian import DEFAULT_MIRROR, drop_leftovers, pick_mirror


@pytest.mark.parametrize(
    ("asked", "has_docker", "kind"),
    [
        (None, True, "public"),
        (None, False, "debootstrap"),
        ("", False, "debootstrap"),
        ("debootstrap", True, "debootstrap"),
        ("public", False, "public"),
    ],
)
def test_kind_of_bases(monkeypatch: pytest.MonkeyPatch, asked: str | None, has_docker: bool, kind: str) -> None:
    monkeypatch.delenv("TOKENPOOL_BASES", raising=False)
    if asked is not None:
        monkeypatch.setenv("TOKENPOOL_BASES", asked)
    assert choose_kind(has_docker=has_docker) == kind


def test_a_misspelt_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENPOOL_BASES", "debian")
    with pytest.raises(ValueError, match="'debian'"):
        choose_kind(has_docker=False)


def test_each_made_base_has_a_name_of_its_own() -> None:
    bases = references("debootstrap")
    assert bases.build == bases.torch_build
    assert len({bases.python, bases.build, bases.torch, bases.compiler}) == 4


def test_another_compiler_renames_the_made_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    before = references("debootstrap")
    monkeypatch.setattr("images.bases.COMPILER", ("clang",))
    assert references("debootstrap").compiler != before.compiler


@pytest.mark.parametrize(
    ("addresses", "mirror"),
    [
        (["http://m.example/debian/", "http://m.example/debian-security/"], "http://m.example/debian"),
        (["https://packages.example/apt/", "https://m.example/pub/debian"], "https://m.example/pub/debian"),
        (["http://archive.example/ubuntu/"], DEFAULT_MIRROR),
        (["file:/srv/debian"], DEFAULT_MIRROR),
        ([], DEFAULT_MIRROR),
    ],
)
def test_mirror_is_the_one_apt_uses(addresses: list[str], mirror: str) -> None:
    assert pick_mirror(addresses) == mirror


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def test_slim_takes_only_what_torch_does_not_load(tmp_path: Path) -> None:
    libraries, packages = tmp_path / "usr/lib/x86_64-linux-gnu", tmp_path / "usr/lib/python3/dist-packages"
    kept = [
        touch(libraries / "libtorch_cpu.so.2"),
        touch(packages / "numpy/_core/_multiarray.cpython-314-x86_64-linux-gnu.so"),
        touch(packages / "torch/testing/__init__.py"),
    ]
    gone = [
        touch(libraries / "libLLVM.so.21.1"),
        touch(packages / "numpy/_core/_multiarray.cpython-315-x86_64-linux-gnu.so"),
        touch(packages / "sympy/core/tests/test_basic.py"),
        touch(tmp_path / "usr/lib/libtorch-test/case"),
    ]
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/python3").symlink_to("python3.14")
    slim(tmp_path)
    assert [path for path in kept if not path.exists()] == []
    assert [path for path in gone if path.exists()] == []


def test_leftovers_go_but_their_folders_keep_their_mode(tmp_path: Path) -> None:
    for name in ("var/lib/apt/lists", "var/cache/apt", "var/log/apt", "tmp"):
        touch(tmp_path / name / "left")
    (tmp_path / "tmp").chmod(0o1777)
    drop_leftovers(tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (tmp_path / "tmp").stat().st_mode & 0o7777 == 0o1777
