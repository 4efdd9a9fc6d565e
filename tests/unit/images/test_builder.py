"""Command lines of a build, and which images of the store are nobody's any more."""

from pathlib import Path

from images.build import BuiltImage, planned, remove_old_archives
from images.builder import Build, stale
from images.recipes import Bases


def test_options_are_those_docker_and_buildah_share() -> None:
    build = Build(
        ref="localhost/tokenpool-router:abc",
        context=Path("/src"),
        dockerfile=Path("/src/workload/Dockerfile"),
        target="router",
        arguments={"ROUTER_BASE_IMAGE": "base:1"},
        secrets={"pip-conf": Path("/tmp/pip.conf")},
    )
    assert " ".join(build.options()) == (
        "-f /src/workload/Dockerfile -t localhost/tokenpool-router:abc --target router"
        " --build-arg ROUTER_BASE_IMAGE=base:1 --secret id=pip-conf,src=/tmp/pip.conf /src"
    )


def test_only_our_unneeded_images_are_stale() -> None:
    refs = ["localhost/tokenpool-engine:old", "localhost/tokenpool-engine:new", "docker.io/library/python:3.13-slim"]
    assert stale(refs, {"localhost/tokenpool-engine:new"}) == ["localhost/tokenpool-engine:old"]


def test_names_and_archives_follow_content(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = planned(Bases("p", "b", "o", "t", "b", "c"))
    assert sorted(images) == ["engine", "operator", "router"]
    for name, image in images.items():
        repository, key = image.ref.rsplit(":", 1)
        assert (repository, len(key)) == (f"localhost/tokenpool-{name}", 12)
        assert image.archive == tmp_path / "tokenpool/images" / f"{name}-{key}.tar"


def test_one_archive_of_each_image_stays(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "tokenpool/images"
    folder.mkdir(parents=True)
    new, old, other = folder / "engine-new.tar", folder / "engine-old.tar", folder / "store"
    for path in (new, old, other):
        path.write_text("")
    remove_old_archives({"engine": BuiltImage("localhost/tokenpool-engine:new", new)})
    assert sorted(folder.iterdir()) == [new, other]
