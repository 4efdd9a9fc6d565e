"""Where the operator's watches go inside a pod."""

import pytest

from tokenpool_operator.handlers import service_address


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({"KUBERNETES_SERVICE_HOST": "198.19.0.1", "KUBERNETES_SERVICE_PORT": "443"}, "https://198.19.0.1:443"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, "https://[fd00::1]:6443"),
        ({"KUBERNETES_SERVICE_HOST": "198.19.0.1"}, None),
        ({}, None),
    ],
)
def test_the_address_needs_no_dns(environ: dict[str, str], address: str | None) -> None:
    assert service_address(environ) == address
