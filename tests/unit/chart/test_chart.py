"""The chart by the real helm: lint, values that are refused, pods that are restricted, rights that are few."""

import json
from typing import Any

import pytest
import yaml

from support.chart import CHART, Refused, helm, of_kind, operator_rules, render
from support.pod_security import restricted_violations

Raw = dict[str, Any]


def test_lint_is_silent() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_what_is_installed() -> None:
    assert sorted(item["kind"] for item in render()) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Deployment",
        "NetworkPolicy",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "replica=2"], "replica"),
        (["--set", "image.repo=x"], "repo"),
        (["--set", "replicas=many"], "replicas"),
        (["--set", "hfEndpoint=ftp://x"], "hfEndpoint"),
        (["--set", "crds.install=perhaps"], "install"),
        (["--set", "watchNamespace=Team_A"], "watchNamespace"),
        (["--set", "imagePullSecrets[0].nam=x"], "nam"),
        (["--set", "resources.limit.cpu=1"], "limit"),
    ],
)
def test_a_wrong_value_is_refused_by_name(arguments: list[str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        render(*arguments)


def test_one_namespace_needs_no_cluster_rights() -> None:
    objects = render("--set", "watchNamespace=team-a")
    assert not of_kind(objects, "ClusterRole")
    assert not of_kind(objects, "ClusterRoleBinding")
    assert {item["metadata"]["namespace"] for item in of_kind(objects, "Role")} == {"team-a", "tokenpool-system"}
    [deployment] = of_kind(objects, "Deployment")
    assert {"name": "TOKENPOOL_WATCH_NAMESPACE", "value": "team-a"} in container(deployment)["env"]
    everywhere, here = of_kind(render(), "ClusterRole"), of_kind(objects, "Role")
    assert here[0]["rules"] == everywhere[0]["rules"]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    ours = {"resourceNames": ["tokenpool-operator"], "verbs": ["get", "update"]}
    assert here[1]["metadata"]["namespace"] == "tokenpool-system"
    assert here[1]["rules"] == [{**leases, "verbs": ["create"]}, {**leases, **ours}]


def test_no_namespace_given_means_all_of_them() -> None:
    assert [role["metadata"].get("namespace") for role in of_kind(render("--set", "watchNamespace=null"), "Role")] == [
        "tokenpool-system"
    ]


def strings_only(mapping: Raw) -> bool:
    return all(isinstance(value, str) for value in mapping.values())


def test_names_that_yaml_takes_for_numbers_stay_text() -> None:
    for item in render("--set-string", "watchNamespace=7,priorityClassName=8", release="1", namespace="2"):
        assert strings_only(item["metadata"].get("labels", {}))
        assert isinstance(item["metadata"].get("namespace", ""), str)
        assert all(strings_only(subject) for subject in item.get("subjects", []))
        if item["kind"] == "Deployment":
            assert strings_only(item["spec"]["selector"]["matchLabels"])
            assert item["spec"]["template"]["spec"]["priorityClassName"] == "8"


def test_every_value_is_in_the_schema_and_described() -> None:
    """The other way round too: a key that no default names is a key that nobody finds."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    schema["properties"].pop("global")
    pairs = [(values, schema)]
    for value, node in pairs:
        assert value.keys() == node["properties"].keys()
        assert all(child.get("description") for child in node["properties"].values())
        pairs += [(value[name], child) for name, child in node["properties"].items() if "properties" in child]


def container(deployment: Raw) -> Raw:
    found: Raw = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def test_images() -> None:
    digest = "sha256:" + "a" * 64
    [deployment] = of_kind(
        render(
            "--set",
            f"image.digest={digest}",
            "--set-string",
            "router.image.tag=7",
            "--set",
            "router.image.repository=r",
        ),
        "Deployment",
    )
    assert container(deployment)["image"].endswith(f"tokenpool-operator@{digest}")
    environment = {entry["name"]: entry.get("value") for entry in container(deployment)["env"]}
    assert environment["TOKENPOOL_ROUTER_IMAGE"] == "r:7"
    assert environment["TOKENPOOL_ENGINE_IMAGE"].endswith("tokenpool-engine:0.1.0")


def test_the_crd_is_kept_on_uninstall_unless_told_otherwise() -> None:
    [crd] = of_kind(render(), "CustomResourceDefinition")
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    [crd] = of_kind(render("--set", "crds.keep=false"), "CustomResourceDefinition")
    assert "annotations" not in crd["metadata"]
    assert not of_kind(render("--set", "crds.install=false"), "CustomResourceDefinition")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--set", "resources=null"],
        ["--set", "watchNamespace=a,hfEndpoint=http://hub,replicas=3,imagePullSecrets[0].name=s"],
    ],
    ids=["defaults", "no resources", "all"],
)
def test_the_operator_pod_is_restricted(arguments: list[str]) -> None:
    [deployment] = of_kind(render(*arguments), "Deployment")
    assert list(restricted_violations(deployment["spec"]["template"]["spec"])) == []


def test_rights_are_enumerated_and_hold_no_way_to_more() -> None:
    rules = operator_rules()
    resources = {resource for rule in rules for resource in rule["resources"]}
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert not {"*", "secrets", "pods/exec"} & resources
    assert not {"*", "escalate", "bind", "impersonate", "deletecollection"} & verbs
    [pods] = [rule for rule in rules if "pods" in rule["resources"]]
    assert pods["verbs"] == ["get", "list", "watch", "create", "delete"]
