"""The mark of a gang that timed out (G09): reading it from pods and writing it."""

import pytest

from builders.gangs.declarations import koordinator_gang, koordinator_pod, marked, problems_of
from builders.gangs.gang import KOORDINATOR
from muster.dialects.registry import gang_marks, membership_of, read_gang, timeout_annotations
from muster.gangs.facts import Severity

TIMEOUT = KOORDINATOR + "timeout"


def timed_out(**marks: str) -> bool:
    membership = membership_of(koordinator_pod(min_available="2", **marks).marks)
    assert membership is not None
    assert membership.gang_id == "koordinator/a/A"
    return membership.timed_out


def test_g09_a_marked_pod_is_timed_out() -> None:
    assert timed_out(timeout="true")
    assert not timed_out()


@pytest.mark.parametrize("text", ["false", "", "True", "1", "yes", " true", "x" * 1000])
def test_any_other_value_is_no_mark(text: str) -> None:
    assert not timed_out(timeout=text)


@pytest.mark.parametrize("text", ["True", "1", "yes", "x" * 1000])
def test_an_odd_value_is_quoted_in_a_warning(text: str) -> None:
    pods = [koordinator_pod("w-0", 5, min_available="2", timeout=text), koordinator_pod("w-1", 9, min_available="2")]
    ((severity, message),) = problems_of(koordinator_gang(*pods))
    assert severity is Severity.WARNING
    assert f'annotation {TIMEOUT} of pod "w-0" is "{text[:60]}' in message
    assert message.endswith("which is neither true nor false: the pod is treated as not timed out")


@pytest.mark.parametrize("text", ["true", "false", ""])
def test_it_changes_nothing_about_the_gang(text: str) -> None:
    unmarked = koordinator_pod("w-1", 9, min_available="2", total_number="3")
    marked_too = koordinator_pod("w-0", 5, min_available="2", total_number="3", timeout=text)
    without = koordinator_pod("w-0", 5, min_available="2", total_number="3")
    assert koordinator_gang(marked_too, unmarked) == koordinator_gang(without, unmarked)


def test_the_written_mark_is_read_back() -> None:
    written = timeout_annotations("koordinator/a/A", timed_out=True)
    assert written == {TIMEOUT: "true"}
    membership = membership_of(gang_marks("a", None, {KOORDINATOR + "name": "A", TIMEOUT: written[TIMEOUT] or ""}))
    assert membership is not None
    assert membership.timed_out
    assert timeout_annotations("koordinator/a/A", timed_out=False) == {TIMEOUT: None}


@pytest.mark.parametrize("gang_id", ["lightweight/a/A", "coscheduling/a/A", "plain/a/A"])
def test_dialects_without_such_a_mark_write_nothing(gang_id: str) -> None:
    assert timeout_annotations(gang_id, timed_out=True) == {}
    assert timeout_annotations(gang_id, timed_out=False) == {}


def test_on_a_pod_of_another_dialect_it_is_reported_and_ignored() -> None:
    pod = marked(labels={"scheduling.x-k8s.io/pod-group": "A"}, annotations={TIMEOUT: "true"})
    membership = membership_of(pod.marks)
    assert membership is not None
    assert (membership.gang_id, membership.timed_out) == ("coscheduling/a/A", False)
    assert any(TIMEOUT in message for _, message in problems_of(read_gang("coscheduling/a/A", None, [pod])))
