"""The one door: all images, built where their content has changed, as archives in the cache."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.cache import locked
from cluster.progress import step
from cluster.provider import docker_answers
from images import bases, pip_settings
from images.buildah import Buildah
from images.builder import Build, Builder
from images.docker import Docker
from images.places import ROOT, images_folder
from images.recipes import RECIPES, Bases, Recipe, content_key


@dataclass(frozen=True)
class BuiltImage:
    """An image's reference, which changes with its content, and the archive that holds it."""

    ref: str
    archive: Path


def all_images() -> dict[str, BuiltImage]:
    """Image by name (operator, router, engine); at once when nothing has changed since the last call."""
    has_docker = docker_answers()
    kind = bases.choose_kind(has_docker=has_docker)
    images = planned(bases.references(kind))
    if all(image.archive.exists() for image in images.values()):
        return images
    with locked(images_folder() / "build.lock", "images"), passed_settings() as secrets:
        builder = choose_builder(has_docker=has_docker)
        with step("images"):
            builder.prepare()
            made = bases.make(kind, builder, secrets)
            for recipe in RECIPES:
                build(builder, recipe, made, images[recipe.name], secrets)
        remove_old_archives(images)
        builder.tidy({*vars(made).values(), *(image.ref for image in images.values())})
    return images


def planned(on: Bases) -> dict[str, BuiltImage]:
    """What each image will be called and where it will lie, from its content alone."""
    planned = {}
    for recipe in RECIPES:
        key = content_key(recipe, on, ROOT)
        planned[recipe.name] = BuiltImage(
            ref=f"localhost/tokenpool-{recipe.name}:{key}", archive=images_folder() / f"{recipe.name}-{key}.tar"
        )
    return planned


def choose_builder(*, has_docker: bool) -> Builder:
    """Docker where it answers, else buildah on a store in the cache."""
    return Docker() if has_docker else Buildah(images_folder() / "store")


def build(builder: Builder, recipe: Recipe, on: Bases, image: BuiltImage, secrets: dict[str, Path]) -> None:
    """Build one image and put its archive in place whole."""
    if image.archive.exists():
        return
    with step(f"{recipe.name} image"):
        arguments = recipe.arguments(on)
        builder.build(Build(image.ref, ROOT, ROOT / recipe.dockerfile, recipe.target, arguments, secrets))
        partial = image.archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        builder.export(image.ref, partial)
        partial.rename(image.archive)


def remove_old_archives(images: dict[str, BuiltImage]) -> None:
    """Only the newest archive of each image stays."""
    keep = {image.archive for image in images.values()}
    for archive in images_folder().glob("*-*.tar"):
        if archive not in keep:
            archive.unlink()


@contextmanager
def passed_settings() -> Iterator[dict[str, Path]]:
    """Secrets of a build by id: pip's settings and the CA bundle of this host, as far as it has any."""
    settings = pip_settings.host_settings(os.environ, pip_settings.config_files(os.environ))
    bundle = pip_settings.ca_bundle(settings, os.environ)
    conf = pip_settings.pip_conf(settings, bundle)
    with TemporaryDirectory() as folder:
        secrets = {"ca-bundle": bundle} if bundle else {}
        if conf:
            secrets["pip-conf"] = Path(folder) / "pip.conf"
            secrets["pip-conf"].write_text(conf)
        yield secrets
