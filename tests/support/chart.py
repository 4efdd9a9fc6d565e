"""The chart as the real helm renders it."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from cluster.build import client_tools

Raw = dict[str, Any]
CHART = Path(__file__).parents[2] / "charts" / "tokenpool"


class Refused(Exception):
    """helm would not; the text is what it said."""


def helm(*arguments: str) -> str:
    """Run helm; `Refused` with its words when it fails."""
    done = subprocess.run(
        [str(client_tools() / "helm"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def render(*arguments: str, release: str = "tokenpool", namespace: str = "tokenpool-system") -> list[Raw]:
    """The objects of a release."""
    text = helm("template", release, str(CHART), "--namespace", namespace, *arguments)
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(objects: list[Raw], kind: str) -> list[Raw]:
    """The objects of one kind."""
    return [item for item in objects if item["kind"] == kind]


def operator_rules() -> list[Raw]:
    """Every right that the chart gives the operator, the lease's included."""
    objects = render()
    return [rule for item in (*of_kind(objects, "ClusterRole"), *of_kind(objects, "Role")) for rule in item["rules"]]
