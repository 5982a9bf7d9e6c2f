"""What merge patches and conditions make of objects."""

from typing import Any

import pytest

from muster.binding.merge_patch import BadPatch, changed_conditions, check_patch, merged
from muster.binding.v1 import binding_pb2 as pb

NOW, BEFORE = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # as RFC 7386 has them
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
def test_a_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result


def condition(status: str = "True", **more: Any) -> pb.ObjectCondition:
    return pb.ObjectCondition(type="Placed", status=status, reason="Enough", **more)


def there(status: str = "True", **more: Any) -> dict[str, Any]:
    found = {"type": "Placed", "status": status, "reason": "Enough", "message": "", "lastTransitionTime": BEFORE}
    return {**found, **more}


def test_a_new_condition_comes_last() -> None:
    other = {"type": "Other", "status": "True"}
    assert changed_conditions([other], [condition()], NOW) == [other, there(lastTransitionTime=NOW)]


def test_what_is_so_changes_nothing() -> None:
    assert changed_conditions([there()], [condition()], NOW) is None


def test_the_time_is_that_of_the_last_change_of_status() -> None:
    assert changed_conditions([there()], [condition(message="more")], NOW) == [there(message="more")]
    assert changed_conditions([there()], [condition("False")], NOW) == [there("False", lastTransitionTime=NOW)]


def test_what_others_say_in_a_condition_stays() -> None:
    before = [there(theirs=1)]
    assert changed_conditions(before, [condition("False")], NOW) == [there("False", theirs=1, lastTransitionTime=NOW)]


def test_a_generation_is_written_if_it_is_known() -> None:
    assert changed_conditions([there()], [condition(observed_generation=3)], NOW) == [there(observedGeneration=3)]


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
def test_rules(rule: Any, before: list[str], written: bool) -> None:
    conditions = [there(status) for status in before]
    assert (changed_conditions(conditions, [condition("False", write_rule=rule)], NOW) is not None) is written


@pytest.mark.parametrize("before", [{"type": "Placed"}, "True", [{}] * 257])
def test_what_is_no_list_of_conditions_is_left_alone(before: Any) -> None:
    with pytest.raises(BadPatch, match="no list of up to 256"):
        changed_conditions(before, [condition()], NOW)


def test_entries_that_are_no_conditions_stay() -> None:
    assert changed_conditions(["odd"], [condition()], NOW) == ["odd", there(lastTransitionTime=NOW)]


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
def test_what_no_patch_may_say(patch: Any, subresource: str) -> None:
    with pytest.raises(BadPatch):
        check_patch(patch, subresource, has_conditions=True)
