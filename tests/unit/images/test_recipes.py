"""An image is renamed exactly when something that goes into it changes, and Dockerfiles copy what recipes count."""

import dataclasses
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from images.bases import references
from images.places import ROOT
from images.recipes import LEFT_BY_TOOLS, LOCKS_AND_MANIFEST, RECIPES, Bases, Recipe, content_key

BASES = Bases("python:1", "build:1", "compile:1", torch="torch:1", torch_build="build:1", compiler="compiler:1")
BY_NAME = {recipe.name: recipe for recipe in RECIPES}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for source in {recipe.dockerfile for recipe in RECIPES} | set(LOCKS_AND_MANIFEST):
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, tmp_path / source)
    for source in {source for recipe in RECIPES for source in recipe.sources}:
        file = tmp_path / source if source.endswith(".txt") else tmp_path / source / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    return tmp_path


def keys(root: Path, bases: Bases = BASES) -> dict[str, str]:
    return {recipe.name: content_key(recipe, bases, root) for recipe in RECIPES}


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("operator/tokenpool_operator/decide.py", {"operator"}),
        ("workload/tokenpool_engine/cache.py", {"engine"}),
        ("workload/tokenpool_router/settings.py", {"router"}),
        ("kube/tokenpool_kube/client.py", {"operator", "router"}),
        ("crds/tokenpool_api/spec.py", {"operator", "router", "engine"}),
        ("requirements/router.txt", {"router"}),
        ("requirements/build.txt", {"operator", "router", "engine"}),
        ("pyproject.toml", {"operator", "router", "engine"}),
        ("operator/Dockerfile", {"operator"}),
        ("workload/Dockerfile", {"router", "engine"}),
        ("tests/unit/test_something.py", set()),
        ("workload/tokenpool_engine/compute/cpu_kernel.c", {"engine"}),
        ("workload/tokenpool_engine/compute/cpu_kernel.so", set()),
        ("workload/tokenpool_engine/compute/cpu_kernel.so.new", set()),
        ("workload/tokenpool_engine/__pycache__/cache.cpython-311.pyc", set()),
    ],
)
def test_a_changed_file_renames_the_images_that_hold_it(tree: Path, file: str, changed: set[str]) -> None:
    before = keys(tree)
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text("another content")
    after = keys(tree)
    assert {name for name in before if before[name] != after[name]} == changed


def test_a_moved_line_between_files_is_a_change(tree: Path) -> None:
    package = tree / "workload/tokenpool_engine"
    (package / "a.py").write_text("x = 1\n")
    before = keys(tree)["engine"]
    (package / "a.py").rename(package / "b.py")
    assert keys(tree)["engine"] != before


@pytest.mark.parametrize(
    ("base", "changed"),
    [
        ("python", {"operator", "router"}),
        ("build", {"operator", "router", "engine"}),
        ("compile", {"router"}),
        ("torch", {"engine"}),
        ("torch_build", {"engine"}),
        ("compiler", {"engine"}),
    ],
)
def test_another_base_renames_what_is_made_with_it(tree: Path, base: str, changed: set[str]) -> None:
    before = keys(tree)
    after = keys(tree, dataclasses.replace(BASES, **{base: "another:1"}))
    assert {name for name in before if before[name] != after[name]} == changed


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_build_arguments_are_declared_in_the_dockerfile(recipe: Recipe) -> None:
    declared = set(re.findall(r"^ARG (\w+)=", (ROOT / recipe.dockerfile).read_text(), re.MULTILINE))
    assert set(recipe.arguments(BASES)) <= declared


@pytest.mark.parametrize("dockerfile", ["operator/Dockerfile", "workload/Dockerfile"])
def test_every_copied_path_counts_for_the_key(dockerfile: str) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / dockerfile).read_text(), re.MULTILINE)
    recipes = [recipe for recipe in RECIPES if recipe.dockerfile == dockerfile]
    counted = {source for recipe in recipes for source in recipe.sources} | set(LOCKS_AND_MANIFEST)
    assert copied
    paths = {Path(path) for line in copied for path in line.split()}
    assert [path for path in paths if not any(path.is_relative_to(source) for source in counted)] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_source_passes_dockerignore(recipe: Recipe) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all(source in allowed or str(Path(source).parent / "*.txt") in allowed for source in recipe.sources)


def test_dockerignore_keeps_out_what_the_key_does_not_count() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    first_unwanted = min(lines.index(f"**/*{ending}") for ending in LEFT_BY_TOOLS)
    assert "**/__pycache__" in lines
    assert not any(line.startswith("!") for line in lines[first_unwanted:]), "the last line that matches decides"


def test_no_wheel_holds_a_kernel_compiled_in_a_working_tree() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {"*.so", "*.so.new"} <= set(wheel["exclude"])


def test_the_public_compiler_is_the_dockerfiles_own() -> None:
    assert f"\nARG KERNEL_BUILD_IMAGE={references('public').compiler}\n" in (ROOT / "workload/Dockerfile").read_text()
    assert f"\nARG ROUTER_COMPILE_IMAGE={references('public').compile}\n" in (ROOT / "workload/Dockerfile").read_text()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_images_run_as_nobody_in_particular_and_start_their_own_program(recipe: Recipe) -> None:
    text = (ROOT / recipe.dockerfile).read_text()
    final = text[text.rindex(f"AS {recipe.target}\n") if recipe.target else text.rindex("\nFROM ") :]
    final = final.split("# ---")[0]
    assert "\nUSER 65532:65532\n" in final
    assert f'\nENTRYPOINT ["/opt/tokenpool/bin/tokenpool-{recipe.name}"]' in final


@pytest.mark.parametrize("lock", ["operator", "router", "engine", "build"])
def test_no_lock_of_an_image_brings_torch(lock: str) -> None:
    names = re.findall(r"^([\w.-]+)==", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE)
    assert names
    assert not {name for name in names if name == "torch" or name.startswith("nvidia-")}
