"""What do the images stand on? Public images, or where none can be pulled, roots made here with the same contents."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cluster.progress import step
from images import debian
from images.builder import Build, Builder
from images.places import ROOT, images_folder
from images.programs import run
from images.recipes import Bases, digest

PYTHON = ("python3", "ca-certificates")
PIP = ("python3-pip",)
# One base for both who need a C compiler: the engine's kernel, and the router, whose compiler is a Python program.
COMPILER = ("gcc", "libc6-dev", "python3-dev", "python3-pip")
# OpenBLAS with OpenMP: its pthread build is five times slower next to torch's own threads, the reference BLAS more.
TORCH = ("python3-torch", "libopenblas0-openmp")
# No library that torch loads needs these: GPU compilers for AMD that MPI's packages pull in, tests, a second Python.
NOT_FOR_TORCH = (
    "usr/lib/*/libLLVM*",
    "usr/lib/*/libamdhip64*",
    "usr/lib/*/libamd_comgr*",
    "usr/lib/*/libhsa-runtime64*",
    "usr/lib/*/libclang*",
    "usr/lib/llvm-*",
    "usr/lib/libtorch-test",
    "usr/lib/python3/dist-packages/torch/bin/test_*",
    "usr/lib/python3/dist-packages/**/tests",
)
TORCH_WORKS = "import torch; assert (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item() == 512.0"
# Part of the bases' names: raise it when the code here makes something else of the same packages.
FORMAT = 1
PUBLIC_PYTHON = "docker.io/library/python:3.13-slim"
PUBLIC_COMPILE = "docker.io/library/python:3.13"
PUBLIC_COMPILER = "docker.io/library/gcc:13-bookworm"
TORCH_CPU = Path("e2e/images/torch-cpu.Dockerfile")


def choose_kind(*, has_docker: bool) -> str:
    """`public` or `debootstrap`: what TOKENPOOL_BASES says, else public where a Docker engine can pull.

    Raises:
        ValueError: TOKENPOOL_BASES is something else.
    """
    kind = os.environ.get("TOKENPOOL_BASES") or ("public" if has_docker else "debootstrap")
    if kind not in ("public", "debootstrap"):
        raise ValueError(f"TOKENPOOL_BASES is {kind!r}; it may be public or debootstrap")
    return kind


def references(kind: str) -> Bases:
    """The references, before anything is made: they change with what the bases are made of."""
    if kind == "public":
        torch = f"localhost/tokenpool-base-torch-cpu:{digest({}, [ROOT / TORCH_CPU], ROOT)}"
        return Bases(PUBLIC_PYTHON, PUBLIC_PYTHON, PUBLIC_COMPILE, torch, torch, PUBLIC_COMPILER)
    contents = (debian.SUITE, PYTHON, PIP, COMPILER, TORCH, NOT_FOR_TORCH, debian.UNWANTED, FORMAT)
    tag = digest({"contents": repr(contents)}, [], ROOT)
    made = ("python", "build", "torch", "compiler")
    python, build, torch, compiler = (f"localhost/tokenpool-base-{name}:{tag}" for name in made)
    return Bases(python, build, compiler, torch, build, compiler)


def make(kind: str, builder: Builder, secrets: dict[str, Path]) -> Bases:
    """Make the bases that the builder lacks."""
    bases = references(kind)
    if kind == "public":
        if not builder.has(bases.torch):
            with step("base image with PyTorch's CPU build"):
                builder.build(Build(bases.torch, ROOT / TORCH_CPU.parent, ROOT / TORCH_CPU, secrets=secrets))
    elif not all(builder.has(ref) for ref in (bases.python, bases.build, bases.torch, bases.compiler)):
        debian.prepare()
        with tempfile.TemporaryDirectory(dir=images_folder(), prefix="root-") as scratch:
            bootstrap(Path(scratch), bases, builder)
    return bases


def bootstrap(scratch: Path, bases: Bases, builder: Builder) -> None:
    """Four images from one root that grows: Python, copies with pip and with a C compiler, and Python with torch."""
    root = scratch / "python"
    with step(f"base image with Python (Debian {debian.SUITE})"):
        debian.make_root(root, PYTHON)
        debian.drop_leftovers(root)
        builder.import_root(root, bases.python)
    with step("base image with pip, to build on"):
        import_copy(root, PIP, bases.build, builder)
    with step("base image with a C compiler"):
        import_copy(root, COMPILER, bases.compiler, builder)
    with step("base image with torch"):
        debian.install(root, TORCH)
        debian.drop_leftovers(root)
        slim(root)
        debian.inside(root, "python3", "-c", TORCH_WORKS)
        builder.import_root(root, bases.torch)


def import_copy(root: Path, packages: Sequence[str], ref: str, builder: Builder) -> None:
    """An image of the root with `packages`; the root itself stays as it is."""
    copy = root.with_name("copy")
    run(["cp", "-a", str(root), str(copy)])
    debian.install(copy, packages)
    debian.drop_leftovers(copy)
    builder.import_root(copy, ref)
    shutil.rmtree(copy)


def slim(root: Path) -> None:
    """Remove what running torch on CPUs never touches: about a third of the root."""
    for path in [*unneeded(root, NOT_FOR_TORCH), *other_pythons(root)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def unneeded(root: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """What the patterns find, as a list first: removing while globbing confuses it."""
    for pattern in patterns:
        yield from list(root.glob(pattern))


def other_pythons(root: Path) -> list[Path]:
    """Extension modules for another Python than the root's own; Debian ships those of the next one along."""
    version = (root / "usr/bin/python3").readlink().name.removeprefix("python").replace(".", "")
    modules = (root / "usr/lib/python3/dist-packages").rglob("*.cpython-*.so")
    return [path for path in modules if not re.search(rf"\.cpython-{version}-", path.name)]
