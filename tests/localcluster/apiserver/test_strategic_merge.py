"""Strategic merge patches: merge keys and directives."""

from typing import Any

import pytest

from muster.localcluster.apiserver.status import StatusError
from muster.localcluster.apiserver.strategic_merge import apply_strategic_merge

CASES: dict[str, tuple[Any, Any, Any]] = {
    "objects are merged": ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
    "null removes": ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
    "containers by name": (
        {"containers": [{"name": "x", "image": "1"}, {"name": "y", "image": "1"}]},
        {"containers": [{"name": "y", "image": "2"}]},
        {"containers": [{"name": "x", "image": "1"}, {"name": "y", "image": "2"}]},
    ),
    "env in a container by name": (
        {"containers": [{"name": "x", "env": [{"name": "A", "value": "1"}]}]},
        {"containers": [{"name": "x", "env": [{"name": "B", "value": "2"}]}]},
        {"containers": [{"name": "x", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]}]},
    ),
    "ports of a container by number": (
        {"containers": [{"name": "x", "ports": [{"containerPort": 80, "name": "a"}]}]},
        {"containers": [{"name": "x", "ports": [{"containerPort": 80, "name": "b"}]}]},
        {"containers": [{"name": "x", "ports": [{"containerPort": 80, "name": "b"}]}]},
    ),
    "ports of a service by port": (
        {"ports": [{"port": 80, "name": "a"}]},
        {"ports": [{"port": 80, "name": "b"}]},
        {"ports": [{"port": 80, "name": "b"}]},
    ),
    "new conditions come first": (
        {"conditions": [{"type": "A", "status": "True"}]},
        {"conditions": [{"type": "B", "status": "True"}]},
        {"conditions": [{"type": "B", "status": "True"}, {"type": "A", "status": "True"}]},
    ),
    "a known condition stays in its place": (
        {"conditions": [{"type": "A"}, {"type": "B"}]},
        {"conditions": [{"type": "B", "status": "True"}]},
        {"conditions": [{"type": "A"}, {"type": "B", "status": "True"}]},
    ),
    "tolerations are replaced": (
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    "taints are replaced": ({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
    "finalizers are united": ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
    "primitives are taken out of a list": (
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    "an element is deleted": (
        {"containers": [{"name": "x"}, {"name": "y"}]},
        {"containers": [{"name": "x", "$patch": "delete"}]},
        {"containers": [{"name": "y"}]},
    ),
    "a list is replaced": (
        {"containers": [{"name": "x"}]},
        {"containers": [{"name": "y"}, {"$patch": "replace"}]},
        {"containers": [{"name": "y"}]},
    ),
    "an object is replaced": ({"a": {"b": 1}}, {"a": {"c": 2, "$patch": "replace"}}, {"a": {"c": 2}}),
    "an object is emptied": ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
    "only retained keys stay": (
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}},
        {"strategy": {"type": "Recreate", "$retainKeys": ["type"]}},
        {"strategy": {"type": "Recreate"}},
    ),
    "the order is set": (
        {"containers": [{"name": "x"}, {"name": "y"}, {"name": "z"}]},
        {"containers": [{"name": "z", "image": "1"}], "$setElementOrder/containers": [{"name": "z"}, {"name": "x"}]},
        {"containers": [{"name": "y"}, {"name": "z", "image": "1"}, {"name": "x"}]},
    ),
    "a scalar replaces": ({"a": [1]}, {"a": "x"}, {"a": "x"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_patch_gives_the_result_of_kube_apiserver(case: str) -> None:
    current, patch, expected = CASES[case]

    assert apply_strategic_merge(current, patch) == expected


def test_an_element_without_its_key_is_rejected() -> None:
    with pytest.raises(StatusError, match="does not contain declared merge key: name"):
        apply_strategic_merge({"containers": []}, {"containers": [{"image": "x"}]})


def test_the_current_object_is_not_changed() -> None:
    current = {"containers": [{"name": "x", "env": [{"name": "A"}]}], "labels": {"a": "b"}}

    apply_strategic_merge(
        current, {"containers": [{"name": "x", "env": [{"name": "A", "value": "1"}]}], "labels": None}
    )

    assert current == {"containers": [{"name": "x", "env": [{"name": "A"}]}], "labels": {"a": "b"}}
