"""Objects after merge patches, and lists of conditions after updates."""

from typing import Any

import pytest

from muster.binding.merge_patch import BadPatch, apply_merge_patch, check_patch, updated_conditions
from muster.binding.v1 import binding_pb2 as pb

NOW, BEFORE = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # examples of RFC 7386
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(target, patch) == result


def condition(status: str = "True", **more: Any) -> pb.ObjectCondition:
    return pb.ObjectCondition(type="Placed", status=status, reason="Enough", **more)


def present(status: str = "True", **more: Any) -> dict[str, Any]:
    found = {"type": "Placed", "status": status, "reason": "Enough", "message": "", "lastTransitionTime": BEFORE}
    return {**found, **more}


def test_new_condition_is_appended() -> None:
    other = {"type": "Other", "status": "True"}
    assert updated_conditions([other], [condition()], NOW) == [other, present(lastTransitionTime=NOW)]


def test_equal_condition_changes_nothing() -> None:
    assert updated_conditions([present()], [condition()], NOW) is None


def test_transition_time_changes_only_with_the_status() -> None:
    assert updated_conditions([present()], [condition(message="more")], NOW) == [present(message="more")]
    assert updated_conditions([present()], [condition("False")], NOW) == [present("False", lastTransitionTime=NOW)]


def test_unknown_fields_of_a_condition_are_kept() -> None:
    before = [present(theirs=1)]
    assert updated_conditions(before, [condition("False")], NOW) == [present("False", theirs=1, lastTransitionTime=NOW)]


def test_observed_generation_is_written_if_given() -> None:
    assert updated_conditions([present()], [condition(observed_generation=3)], NOW) == [present(observedGeneration=3)]


@pytest.mark.parametrize(
    ("rule", "before", "written"),
    [
        (pb.ObjectCondition.WRITE_RULE_UNLESS_TRUE, ["True"], False),
        (pb.ObjectCondition.WRITE_RULE_UNLESS_TRUE, ["Unknown"], True),
        (pb.ObjectCondition.WRITE_RULE_UNLESS_TRUE, [], True),
        (pb.ObjectCondition.WRITE_RULE_IF_PRESENT, ["True"], True),
        (pb.ObjectCondition.WRITE_RULE_IF_PRESENT, [], False),
        (pb.ObjectCondition.WRITE_RULE_UNSPECIFIED, ["True"], True),
    ],
)
def test_write_rules(rule: Any, before: list[str], written: bool) -> None:
    conditions = [present(status) for status in before]
    assert (updated_conditions(conditions, [condition("False", write_rule=rule)], NOW) is not None) is written


@pytest.mark.parametrize("before", [{"type": "Placed"}, "True", [{}] * 257])
def test_invalid_list_of_conditions_is_rejected(before: Any) -> None:
    with pytest.raises(BadPatch, match="not a list of at most 256"):
        updated_conditions(before, [condition()], NOW)


def test_entries_that_are_not_conditions_are_kept() -> None:
    assert updated_conditions(["odd"], [condition()], NOW) == ["odd", present(lastTransitionTime=NOW)]


@pytest.mark.parametrize(
    ("patch", "subresource"),
    [
        ({"metadata": {"finalizers": []}}, ""),
        ({"metadata": 1}, ""),
        ({"apiVersion": "v2"}, ""),
        ({"spec": {}}, "status"),
        ({"status": 1}, "status"),
    ],
)
def test_forbidden_fields_of_a_patch_are_rejected(patch: Any, subresource: str) -> None:
    with pytest.raises(BadPatch):
        check_patch(patch, subresource, has_conditions=True)
