"""`python -m images build|bases|list`."""

import argparse
import sys

from cluster.provider import docker_answers
from images import bases
from images.build import all_images, choose_builder, passed_settings, planned


def build() -> None:
    """Build what has changed and say where each image is."""
    for image in all_images().values():
        print(f"{image.ref}  {image.archive}  {image.archive.stat().st_size / 1e6:.0f} MB")


def make_bases() -> None:
    """Make the base images only."""
    has_docker = docker_answers()
    builder = choose_builder(has_docker=has_docker)
    builder.prepare()
    with passed_settings() as secrets:
        print(bases.make(bases.choose_kind(has_docker=has_docker), builder, secrets))


def show() -> None:
    """List what `build` would give, and what of it is there."""
    for image in planned(bases.references(bases.choose_kind(has_docker=docker_answers()))).values():
        print(f"{image.ref}  {'built' if image.archive.exists() else 'not built'}")


def main() -> int:
    """Run one command."""
    commands = {"build": build, "bases": make_bases, "list": show}
    parser = argparse.ArgumentParser(prog="images", description=__doc__)
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args().command]()
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
