"""One cluster and one installation for all stories; a namespace of its own for each."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.build import client_tools
from cluster.provider import Provider, choose_provider
from images.build import BuiltImage, all_images
from models import smollm2_directory
from stack.install import MODEL_CLAIM, install_chart, restricted_namespace
from stack.kubectl import Kubectl
from stack.pool import Pool


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """The cluster. One that was up before stays up; one that we started is taken down."""
    chosen = choose_provider()
    was_up = chosen.is_up()
    chosen.up()
    yield chosen
    if not was_up and not os.environ.get("KEEP_CLUSTER"):
        chosen.down()


@pytest.fixture(scope="session")
def images(provider: Provider) -> dict[str, BuiltImage]:
    built = all_images()
    provider.load_images([image.archive for image in built.values()])
    return built


@pytest.fixture(scope="session")
def cluster_kubectl(provider: Provider) -> Kubectl:
    return Kubectl(client_tools(), provider.kubeconfig())


@pytest.fixture(scope="session")
def installed(cluster_kubectl: Kubectl, images: dict[str, BuiltImage]) -> Kubectl:
    """A cluster on which the chart is installed."""
    install_chart(cluster_kubectl, images)
    return cluster_kubectl


@pytest.fixture(scope="session")
def model_directory() -> Path:
    return smollm2_directory()


@pytest.fixture
def kubectl(installed: Kubectl, provider: Provider, model_directory: Path) -> Iterator[Kubectl]:
    """kubectl in a fresh namespace that enforces Pod Security "restricted" and holds the model's volume claim."""
    name = f"story-{uuid.uuid4().hex[:8]}"
    installed.apply(restricted_namespace(name))
    provider.make_volume(MODEL_CLAIM, namespace=name, directory=model_directory.parent)
    yield installed.within(name)
    installed.run("delete", "namespace", name, "--wait=false")


@pytest.fixture
def make_pool(kubectl: Kubectl, provider: Provider) -> Callable[[str], Pool]:
    """A pool of the example's kind under the given name; nothing is applied yet."""
    return lambda name: Pool(kubectl, name, provider.forward_service)
