"""PodGroups that wait for quota: lifecycle's condition or annotation blocks their gangs."""

from typing import Any

import pytest

from muster.dialects.definitions import Definition
from muster.dialects.quota import QUOTA_WAITS
from muster.dialects.registry import read_gang
from muster.gangs.facts import Severity

KINDS = {"kube-batch": "scheduling.incubator.k8s.io/v1alpha1", "coscheduling": "scheduling.x-k8s.io/v1alpha1"}


def problems(dialect: str, **written: Any) -> list[str]:
    """Returns the problems of a gang whose PodGroup has this status or annotation."""
    pod_group = Definition(KINDS[dialect], "PodGroup", "ml", "train", "uid", spec={"minMember": 2}, **written)
    facts = read_gang(f"{dialect}/ml/train", pod_group, [])
    return [problem.message for problem in facts.problems if problem.severity is Severity.BLOCKING]


def reserved(status: str, **more: str) -> Any:
    return {"conditions": [{"type": "Other", "status": "True"}, {"type": "QuotaReserved", "status": status, **more}]}


@pytest.mark.parametrize("dialect", KINDS)
def test_a_gang_waits_while_its_quota_is_not_reserved(dialect: str) -> None:
    [waits] = problems(dialect, status=reserved("False", message="no room for cpu=8"))
    assert waits == "quota is not reserved for it yet: no room for cpu=8"


@pytest.mark.parametrize("dialect", KINDS)
def test_waits_for_quota_and_missing_definitions_have_reasons_of_their_own(dialect: str) -> None:
    waits = Definition(
        KINDS[dialect], "PodGroup", "ml", "train", "uid", spec={"minMember": 2}, status=reserved("False")
    )
    for definition, reason in ((waits, "WaitingForQuota"), (None, "GangNotDeclared")):
        [problem] = read_gang(f"{dialect}/ml/train", definition, []).problems
        assert (problem.severity, problem.reason) == (Severity.BLOCKING, reason)


@pytest.mark.parametrize("dialect", KINDS)
def test_an_annotation_replaces_missing_conditions(dialect: str) -> None:
    [waits] = problems(dialect, annotations={QUOTA_WAITS: "no room for cpu=8"})
    assert waits == "quota is not reserved for it yet: no room for cpu=8"


@pytest.mark.parametrize("dialect", KINDS)
@pytest.mark.parametrize("status", [{}, reserved("True"), {"conditions": "nonsense"}, {"conditions": [5, None]}])
def test_without_condition_or_annotation_nothing_waits(dialect: str, status: Any) -> None:
    assert problems(dialect, status=status) == []
