"""What is each image made of? The content key of an image changes exactly when something that goes into it does."""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LOCKS_AND_MANIFEST = ("pyproject.toml", "README.md", "LICENSE", ".dockerignore", "requirements/build.txt")
KEY_LENGTH = 12
# What working in the tree leaves beside the sources; .dockerignore keeps the same out of builds.
LEFT_BY_TOOLS = (".pyc", ".so", ".so.new")


@dataclass(frozen=True)
class Bases:
    """References of the images that the others stand on.

    `build` is `python` with pip, `compile` that with a C compiler and Python's headers; `compiler` has a C compiler.
    """

    python: str
    build: str
    compile: str
    torch: str
    torch_build: str
    compiler: str


@dataclass(frozen=True)
class Recipe:
    """One image: its Dockerfile, the target in it, and the files that this target copies."""

    name: str
    dockerfile: str
    target: str | None
    sources: tuple[str, ...]

    def arguments(self, bases: Bases) -> dict[str, str]:
        """Build arguments: the bases, under the names that the Dockerfile gives them."""
        match self.name:
            case "operator":
                return {"BASE_IMAGE": bases.python, "BUILD_IMAGE": bases.build}
            case "router":
                return {
                    "ROUTER_BASE_IMAGE": bases.python,
                    "ROUTER_BUILD_IMAGE": bases.build,
                    "ROUTER_COMPILE_IMAGE": bases.compile,
                }
            case _:
                return {
                    "ROUTER_BUILD_IMAGE": bases.build,
                    "ENGINE_BASE_IMAGE": bases.torch,
                    "ENGINE_BUILD_IMAGE": bases.torch_build,
                    "KERNEL_BUILD_IMAGE": bases.compiler,
                }


RECIPES = (
    Recipe(
        "operator",
        "operator/Dockerfile",
        None,
        ("requirements/operator.txt", "crds/tokenpool_api", "kube/tokenpool_kube", "operator/tokenpool_operator"),
    ),
    Recipe(
        "router",
        "workload/Dockerfile",
        "router",
        (
            "requirements/router.txt",
            "requirements/compile.txt",
            "crds/tokenpool_api",
            "kube/tokenpool_kube",
            "workload/compile_router.py",
            "workload/tokenpool_router",
        ),
    ),
    Recipe(
        "engine",
        "workload/Dockerfile",
        "engine",
        ("requirements/engine.txt", "crds/tokenpool_api", "workload/tokenpool_engine"),
    ),
)


def content_key(recipe: Recipe, bases: Bases, root: Path) -> str:
    """12 hex digits over the files, the build arguments and the machine's architecture."""
    paths = files_of((recipe.dockerfile, *LOCKS_AND_MANIFEST, *recipe.sources), root)
    return digest(recipe.arguments(bases) | {"machine": platform.machine()}, paths, root)


def digest(facts: Mapping[str, str], files: Iterable[Path], root: Path) -> str:
    """Hash of facts and of files by relative path and content."""
    total = hashlib.sha256(repr(sorted(facts.items())).encode())
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()[:KEY_LENGTH]


def files_of(sources: Iterable[str], root: Path) -> Iterator[Path]:
    """The files behind `sources`, sorted, without what .dockerignore keeps out."""
    for source in sorted(sources):
        path = root / source
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and not file.name.endswith(LEFT_BY_TOOLS))
