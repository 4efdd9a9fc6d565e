"""What is made once: whole or absent, and by one process at a time."""

from pathlib import Path

import pytest

from cluster import build, helm_kubectl
from cluster.cache import cache_folder, made_once


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder()


def write(folder: Path) -> None:
    (folder / "file").write_text("whole")


def test_made_at_the_first_call_only(cache: Path) -> None:
    assert made_once("thing", write) == cache / "thing"
    made_once("thing", lambda folder: pytest.fail("made twice"))


def test_an_interrupted_make_leaves_nothing_under_the_name(cache: Path) -> None:
    def break_off(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once("thing", break_off)
    assert not (cache / "thing").exists()
    assert sorted(path.name for path in made_once("thing", write).iterdir()) == ["file"]


def test_the_name_of_a_build_follows_sources_and_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.source_hash("go1.26.0")
    assert before == build.source_hash("go1.26.0") != build.source_hash("go1.26.1")
    for name in build.SOURCES:
        (tmp_path / "go" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "go" / name).write_bytes((build.SOURCE / name).read_bytes() + b"\n")
    monkeypatch.setattr(build, "SOURCE", tmp_path / "go")
    assert build.source_hash("go1.26.0") != before


def test_programs_say_the_version_of_go_mod() -> None:
    version = build.kubernetes_version()
    assert version.startswith("v1.")
    assert f"gitVersion={version}" in build.version_flags()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Client Version: v1.37.1\nKustomize Version: v5.8.1", (1, 37)),
        ("Client Version: v1.32.4-dispatcher", (1, 32)),
        ("v3.9.0+g7ceeda6", (3, 9)),
        ("", (0, 0)),
    ],
)
def test_versions_of_tools(text: str, version: tuple[int, int]) -> None:
    assert helm_kubectl.parse_version(text) == version


def test_links_to_tools_follow_the_path(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    helm_kubectl.linked({"helm": old})
    assert (helm_kubectl.linked({"helm": new}) / "helm").readlink() == new
