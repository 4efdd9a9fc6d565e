"""A model comes from the hub: the real client downloads from a stand-in of the hub's file API inside the cluster."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.build import BuiltImage
from stack import reference
from stack.hub import CANARY_TOKEN, deploy_hub
from stack.install import install_chart
from stack.kubectl import Kubectl
from stack.pool import Pool


@pytest.fixture
def hub(kubectl: Kubectl, installed: Kubectl, images: dict[str, BuiltImage]) -> Iterator[str]:
    """The stand-in's address, told to the operator; afterwards the operator forgets it."""
    address = deploy_hub(kubectl, images["engine"].ref)
    install_chart(installed, images, "--set", f"hfEndpoint={address}")
    yield address
    install_chart(installed, images, "--set", "hfEndpoint=")


def test_gated_model_needs_its_token_and_the_token_stays_hidden(
    hub: str, make_pool: Callable[[str], Pool], model_directory: Path
) -> None:
    pool = make_pool("gated")
    pool.apply({"model": {"source": "hf://demo/no-such-model"}})
    missing = pool.wait_condition("Degraded", "True", reason="ModelNotFound", seconds=120)
    assert "demo/no-such-model" in missing["message"]

    pool.patch({"model": {"source": "hf://demo/smollm2-gated"}})
    refused = pool.wait_condition("Degraded", "True", reason="DownloadFailed", seconds=120)
    assert "demo/smollm2-gated" in refused["message"]

    pool.patch({"model": {"credentialsSecret": {"name": "hub-token", "key": "token"}}})
    pool.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hub-token"},
            "stringData": {"token": CANARY_TOKEN},
        }
    )
    pool.wait_ready(shards=1)
    answer = pool.client().chat.completions.create(
        model="smollm2-135m-instruct",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_tokens=16,
        temperature=0,
    )
    assert answer.choices[0].message.content == reference.generate(
        model_directory, "What is the capital of France?", 16
    )

    [shard] = pool.shards()
    serving = json.dumps(shard["spec"]["containers"])
    assert "hub-token" not in serving, "only the container that downloads gets the token"
    seen = pool.kubectl.run("get", "tokenpools,pods,events,configmaps", "-o", "json")
    logs = pool.kubectl.run("logs", shard["metadata"]["name"], "--all-containers")
    assert CANARY_TOKEN not in seen + logs
