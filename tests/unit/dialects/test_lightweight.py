"""Lightweight gangs: two labels."""

import pytest

from builders.gangs.declarations import marked, problems_of
from muster.dialects.marks import MarkSet
from muster.dialects.registry import membership_of, read_gang
from muster.gangs.facts import GangFacts, GangMode, Severity

PREFIX = "pod-group.scheduling.sigs.k8s.io/"


def member(name: str = "w-0", *, created_seconds: int = 100, **labels: str) -> MarkSet:
    keyed = {PREFIX + key.replace("_", "-"): value for key, value in {"name": "A", **labels}.items()}
    return marked(name, labels=keyed, created_seconds=created_seconds)


def gang_of(*pods: MarkSet) -> GangFacts:
    return read_gang("lightweight/a/A", None, pods)


def test_the_label_names_the_gang() -> None:
    membership = membership_of(member().marks)
    assert membership is not None
    assert membership.gang_id == "lightweight/a/A"


@pytest.mark.parametrize("name", ["", "a/b", "-"])
def test_a_name_that_is_no_name_is_the_pods_problem(name: str) -> None:
    membership = membership_of(marked(labels={PREFIX + "name": name}).marks)
    assert membership is not None
    assert membership.gang_id == ""
    assert membership.problem.startswith(f"label {PREFIX}name is ")


def test_a_gang() -> None:
    assert gang_of(member(min_available="3")) == GangFacts(
        id="lightweight/a/A",
        dialect="lightweight",
        namespace="a",
        name="A",
        incarnation="uid-of-w-0",
        minimum=3,
        total=3,
        mode=GangMode.STRICT,
        waiting_time_seconds=600.0,
        created_seconds=100,
        terms=("pod-group.scheduling.sigs.k8s.io/min-available: 3 (pod w-0)",),
    )


@pytest.mark.parametrize("value", ["five", "0", "-1", "", "99999999999"])
def test_g26_a_malformed_minimum_blocks_and_is_quoted(value: str) -> None:
    gang = gang_of(member(min_available=value))
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.BLOCKING
    assert message.startswith(f'label {PREFIX}min-available of pod "w-0" is "{value}"')
    assert gang.minimum == 0


def test_a_missing_minimum_blocks() -> None:
    ((severity, message),) = problems_of(gang_of(member()))
    assert severity is Severity.BLOCKING
    assert message == (
        f"no pod of the gang has the label {PREFIX}min-available: set it to the number of pods that must start together"
    )


def test_the_oldest_pod_decides_and_the_other_is_named() -> None:
    gang = gang_of(
        member("w-1", created_seconds=5, min_available="4"), member("w-0", created_seconds=6, min_available="3")
    )
    assert gang.minimum == 4
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.WARNING
    assert 'pod "w-0" is "3", but "4" is used' in message
