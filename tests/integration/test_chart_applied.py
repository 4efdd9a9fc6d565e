"""The chart's objects before the real API server: every field known, and no warning about the operator's pod."""

import subprocess

import pytest
import yaml

from cluster.build import client_tools
from cluster.controlplane import ControlPlane
from support.chart import Raw, render


def dry_run(control_plane: ControlPlane, objects: list[Raw]) -> str:
    """Apply on the server without storing; what kubectl said, warnings included."""
    done = subprocess.run(
        [
            str(client_tools() / "kubectl"),
            f"--kubeconfig={control_plane.kubeconfig}",
            *("apply", "--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict", "-f", "-"),
        ],
        input=yaml.safe_dump_all(objects),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("watches_one", [False, True], ids=["all namespaces", "one namespace"])
async def test_the_server_takes_every_object(control_plane: ControlPlane, namespace: str, watches_one: bool) -> None:
    values = ["--set", f"watchNamespace={namespace},hfEndpoint=http://hub:1,imagePullSecrets[0].name=s,replicas=2"]
    objects = render(*(values if watches_one else []), namespace=namespace)
    said = dry_run(control_plane, objects)
    assert "Warning" not in said
    assert len(said.splitlines()) == len(objects)


async def test_a_pod_that_is_not_restricted_would_be_told(control_plane: ControlPlane, namespace: str) -> None:
    objects = [item for item in render(namespace=namespace) if item["kind"] == "Deployment"]
    objects[0]["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {}
    assert "Warning: would violate PodSecurity" in dry_run(control_plane, objects)
