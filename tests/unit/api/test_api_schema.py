"""The CRD as it is written: fresh, described, bounded, and in the form that the API server takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tokenpool_api import crd, names
from tokenpool_api.schema import structural
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_api.status import TokenPoolStatus
from tokenpool_api.wire import RouterLoad, ShardLoad

Node = dict[str, Any]


def walk(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from walk(node[key], f"{path}[]")


FIELDS = [*walk(structural(TokenPoolSpec), "spec"), *walk(structural(TokenPoolStatus), "status")]


@pytest.mark.parametrize(
    ("file", "text"), [(crd.CRD_FILE, crd.crd_text()), (crd.CHART_FILE, crd.chart_text())], ids=["crds", "chart"]
)
def test_generated_files_are_fresh(file: Path, text: str) -> None:
    assert file.read_text() == text, "run `make crds`"


@pytest.mark.parametrize(("path", "node"), [field for field in FIELDS if not field[0].endswith("[]")])
def test_every_field_is_described_in_a_sentence_or_two(path: str, node: Node) -> None:
    assert 8 <= len(node["description"]) <= 400


@pytest.mark.parametrize(("path", "node"), FIELDS)
def test_every_field_has_a_bound(path: str, node: Node) -> None:
    kind = node.get("type")
    if kind == "string":
        assert "maxLength" in node or "enum" in node
    elif kind == "integer":
        assert {"minimum", "maximum"} <= node.keys()
    elif kind == "array":
        assert "maxItems" in node
    elif kind == "object" and "properties" not in node:
        assert "maxProperties" in node
    elif node.get("x-kubernetes-int-or-string"):
        assert "maxLength" in node
    else:
        assert kind in ("object", "boolean")


@pytest.mark.parametrize(("path", "node"), [field for field in FIELDS if "properties" in field[1]])
def test_an_object_with_a_default_names_all_defaults_below_it(path: str, node: Node) -> None:
    """Else an object that is left out would come without the defaults below it."""
    below = {name: child["default"] for name, child in node["properties"].items() if "default" in child}
    assert node.get("default", below) == below
    # These are never made by a default: they are given, or the whole is missing.
    is_given = path in ("spec", "status") or path.endswith("[]") or "required" in node
    assert is_given or not below or "default" in node


@pytest.mark.parametrize(("path", "node"), FIELDS)
def test_nothing_that_a_structural_schema_may_not_have(path: str, node: Node) -> None:
    assert not {"$ref", "title", "oneOf", "allOf", "const"} & node.keys()
    assert node.get("type") != "null"
    assert node.get("default", "") is not None


def test_defaults_are_written_out_so_that_nested_objects_get_theirs() -> None:
    router = structural(TokenPoolSpec)["properties"]["router"]
    assert router["default"] == {
        "replicas": 1,
        "workers": 1,
        "policy": "LeastTokens",
        "queue": {"maxTokens": 262144, "timeoutSeconds": 30},
    }


def test_the_chart_copy_is_the_same_definition() -> None:
    lines = [line for line in crd.chart_text().splitlines() if "{{" not in line and "annotations:" not in line]
    plain = [line for line in lines if "helm.sh/resource-policy" not in line]
    assert yaml.safe_load("\n".join(plain)) == crd.definition()


def test_the_longest_names_stay_host_names_and_label_values() -> None:
    longest = names.shard_name("p" * names.POOL_NAME_MAX_LENGTH, "r" * names.REVISION_LENGTH, names.MAX_SHARDS - 1)
    assert len(longest) <= 63


@pytest.mark.parametrize("file", sorted((crd.ROOT / "examples").glob("*.yaml")), ids=lambda file: file.name)
def test_examples_are_valid(file: Path) -> None:
    example = yaml.safe_load(file.read_text())
    assert example["apiVersion"] == names.API_VERSION
    TokenPoolSpec.model_validate(example["spec"])


def test_bodies_on_the_wire_are_camel_case_and_take_what_newer_peers_add() -> None:
    body = {
        "ready": True,
        "draining": False,
        "runningRequests": 1,
        "waitingRequests": 2,
        "outstandingTokens": 3,
        "kvTokensReserved": 4,
        "kvTokensCapacity": 5,
        "promptTokensTotal": 6,
        "generatedTokensTotal": 7,
        "stepsTotal": 8,
        "tokensPerSecond": 9.5,
    }
    load = ShardLoad.model_validate({**body, "fromTheFuture": 1})
    assert load.model_dump(by_alias=True) == body


def test_a_router_tells_of_each_shard() -> None:
    shard = {
        "name": "chat-abcd1234-0",
        "address": "10.0.0.1:8000",
        "outstandingTokens": 1,
        "inFlightRequests": 2,
        "ejected": False,
        "weight": 0.3,
        "draining": True,
    }
    revision = {"requests": 9, "errors": 1, "ttftP50Seconds": 0.1, "ttftP99Seconds": 0.5}
    body = {
        "queuedRequests": 3,
        "queuedTokens": 4,
        "shards": [shard],
        "workers": 2,
        "rosterGeneration": 7,
        "arrivingPromptTokensPerSecond": 10.0,
        "arrivingAnswerTokensPerSecond": 11.0,
        "drainTokensPerSecond": 12.0,
        "revisions": {"abcd1234": revision},
    }
    assert RouterLoad.model_validate(body).model_dump(by_alias=True, mode="json") == body


@pytest.mark.parametrize("field", ["runningRequests", "outstandingTokens", "tokensPerSecond"])
def test_a_negative_number_on_the_wire_is_refused(field: str) -> None:
    fields = [info.alias for info in ShardLoad.model_fields.values()]
    body = {name: 0 for name in fields if name} | {field: -1}
    with pytest.raises(ValidationError, match=field):
        ShardLoad.model_validate(body)
