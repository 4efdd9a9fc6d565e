"""When an object has to be applied again, and when not."""

import copy
from typing import Any

import pytest

from tokenpool_operator.drift import ANNOTATION, is_current, stamped

Raw = dict[str, Any]
WANTED: Raw = stamped(
    {
        "kind": "Deployment",
        "metadata": {"name": "r"},
        "spec": {"replicas": 1, "ports": [{"port": 80}], "limits": {"cpu": "1500m", "memory": "1Gi"}, "from": [{}]},
    }
)


def live(**spec: Any) -> Raw:
    """The object as the API server gives it back: defaults added, quantities rewritten."""
    item = copy.deepcopy(WANTED)
    item["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    item["spec"] |= {"revisionHistoryLimit": 10, "ports": [{"port": 80, "protocol": "TCP"}]} | spec
    return item


def test_defaults_of_the_server_are_no_drift() -> None:
    assert is_current(WANTED, live())


@pytest.mark.parametrize(
    ("limits", "current"),
    [
        ({"cpu": "1.5", "memory": "1Gi"}, True),
        ({"cpu": "1500m", "memory": "1024Mi"}, True),
        ({"cpu": "2", "memory": "1Gi"}, False),
        ({"cpu": "1500m"}, False),
    ],
)
def test_quantities_are_compared_by_value(limits: Raw, current: bool) -> None:
    assert is_current(WANTED, live(limits=limits)) is current


@pytest.mark.parametrize("text", ["70912e6867458331", "9e999999E", "1e-70912686745", "inf", "nan", "k", "0x10"])
def test_a_hash_that_looks_like_a_number_is_text(text: str) -> None:
    wanted = stamped({"metadata": {}, "data": {"hash": text}})
    for other in ("deadbeef", "70912e6867458332", "sNaN", "1"):
        assert not is_current(wanted, {"metadata": wanted["metadata"], "data": {"hash": other}})
    assert is_current(wanted, {"metadata": wanted["metadata"], "data": {"hash": text}})


def test_integers_that_come_back_as_text_are_no_drift() -> None:
    wanted = stamped({"metadata": {}, "limits": {"nvidia.com/gpu": 1}})
    assert is_current(wanted, {"metadata": wanted["metadata"], "limits": {"nvidia.com/gpu": "1"}})


def test_an_empty_field_that_the_server_leaves_out_is_no_drift() -> None:
    wanted = stamped({"metadata": {}, "limits": {}, "ports": []})
    assert is_current(wanted, {"metadata": wanted["metadata"]})


@pytest.mark.parametrize("change", [{"replicas": 2}, {"replicas": None}, {"ports": []}, {"ports": [{"port": 81}]}])
def test_what_others_change_is_drift(change: Raw) -> None:
    assert not is_current(WANTED, live(**change))


def test_a_field_that_we_no_longer_send_is_drift() -> None:
    body = {"metadata": {"name": "r"}, "spec": {"a": 1}}
    before = stamped(body | {"spec": {"a": 1, "b": 2}})
    assert not is_current(stamped(body), before)


def test_the_stamp_keeps_other_annotations() -> None:
    assert stamped({"metadata": {"annotations": {"a": "b"}}})["metadata"]["annotations"].keys() == {"a", ANNOTATION}
