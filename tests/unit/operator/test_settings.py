"""Flags, environment, defaults; and the settings that keep kopf alive."""

import itertools
from pathlib import Path

import kopf
import pytest

from tokenpool_operator.handlers import EndlessBackoffs, kopf_settings, login
from tokenpool_operator.settings import parse

IMAGES = {"TOKENPOOL_ENGINE_IMAGE": "engine:1", "TOKENPOOL_ROUTER_IMAGE": "router:1"}


def test_the_environment_is_enough() -> None:
    found = parse([], IMAGES | {"POD_NAME": "op-1", "POD_NAMESPACE": "system", "TOKENPOOL_LEASE_SECONDS": "3"})
    assert (found.engine_image, found.router_image) == ("engine:1", "router:1")
    assert (found.pod_name, found.pod_namespace, found.lease_seconds) == ("op-1", "system", 3.0)
    assert (found.hf_endpoint, found.watch_namespace) == (None, None)
    assert (found.health_port, found.metrics_port) == (8080, 8081)


def test_a_flag_wins_over_the_environment() -> None:
    assert parse(["--engine-image", "engine:2", "--watch-namespace", "a"], IMAGES).engine_image == "engine:2"


@pytest.mark.parametrize("missing", sorted(IMAGES))
def test_a_missing_image_is_said(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse([], {key: value for key, value in IMAGES.items() if key != missing})
    assert missing.removeprefix("TOKENPOOL_").replace("_", "-").lower() in capsys.readouterr().err


def test_backoffs_never_end_and_start_anew_for_each_request() -> None:
    backoffs = EndlessBackoffs()
    for _ in range(2):
        delays = list(itertools.islice(backoffs, 1000))
        assert 0.25 <= delays[0] <= 0.5
        assert 2.0 <= min(delays[10:]) <= max(delays) <= 4.0


def test_nothing_of_kopf_that_sets_finalizers_or_writes() -> None:
    found = kopf_settings()
    assert found.posting.enabled is False
    assert found.scanning.disabled is True
    assert found.peering.standalone is True


def test_two_logins_are_never_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    first, second = login(settings=kopf.OperatorSettings()), login(settings=kopf.OperatorSettings())
    assert first is not None
    assert first.server == "http://127.0.0.1:1"
    assert first != second
