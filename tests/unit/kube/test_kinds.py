import pytest

from tokenpool_kube import Kind, kinds


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "sub", "path"),
    [
        (kinds.POD, "ns", None, None, "/api/v1/namespaces/ns/pods"),
        (kinds.POD, None, None, None, "/api/v1/pods"),
        (kinds.POD, "ns", "a", "status", "/api/v1/namespaces/ns/pods/a/status"),
        (kinds.NODE, None, "n", None, "/api/v1/nodes/n"),
        (kinds.NODE, "ignored", "n", None, "/api/v1/nodes/n"),
        (kinds.DEPLOYMENT, "ns", "d", None, "/apis/apps/v1/namespaces/ns/deployments/d"),
        (kinds.TOKENPOOL, "ns", "p", "status", "/apis/tokenpool.dev/v1alpha1/namespaces/ns/tokenpools/p/status"),
        (kinds.POD, "ns", "../secrets/x", None, "/api/v1/namespaces/ns/pods/..%2Fsecrets%2Fx"),
    ],
)
def test_paths(kind: Kind, namespace: str | None, name: str | None, sub: str | None, path: str) -> None:
    assert kind.path(namespace, name, sub) == path


@pytest.mark.parametrize(("namespace", "name"), [("ns", ""), ("", "a"), ("", None), (None, "a")])
def test_a_path_never_widens_by_accident(namespace: str | None, name: str | None) -> None:
    # A DELETE on the collection would be the result.
    with pytest.raises(ValueError, match="needs a"):
        kinds.POD.path(namespace, name)


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [(kinds.POD, "v1"), (kinds.LEASE, "coordination.k8s.io/v1"), (kinds.ROLE, "rbac.authorization.k8s.io/v1")],
)
def test_api_versions(kind: Kind, api_version: str) -> None:
    assert kind.api_version == api_version
