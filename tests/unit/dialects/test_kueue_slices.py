"""Slices of Kueue's pod sets: constraints of the gang, or subgroups by pod set, unless Kueue chose the domains."""

from collections.abc import Mapping

import pytest

from builders.gangs.declarations import marked, problems_of
from muster.dialects.definitions import Definition
from muster.dialects.kueue_slices import LAYERS, MAX_POD_SETS, POD_SET, SIZE, TOPOLOGY
from muster.dialects.kueue_workload import ASKED_FOR, DEFINITION, WORKLOAD
from muster.dialects.marks import MarkSet
from muster.dialects.registry import gang_marks, read_gang
from muster.gangs.facts import GangFacts, LevelConstraint, LevelPolicy, Severity, SubgroupPolicy
from muster.gangs.selectors import EVERYTHING_SELECTED, Operator, Requirement

RACK = "example.com/rack"
TREE = "label example.com/rack"
ROLE_HASH = "kueue.x-k8s.io/role-hash"
OF_FOUR = {TOPOLOGY: RACK, SIZE: "4"}


def pod(number: int, annotations: Mapping[str, str], pod_set: str = "") -> MarkSet:
    labels = {"kueue.x-k8s.io/pod-group-name": "A", **({POD_SET: pod_set} if pod_set else {})}
    given = {"kueue.x-k8s.io/pod-group-total-count": "9", **annotations}
    return marked(f"w-{number}", labels=labels, annotations=given, created_seconds=100 + number)


def group_of(*pods: MarkSet) -> GangFacts:
    return read_gang("kueue/a/A", None, pods)


def slices_of(size: int) -> tuple[LevelConstraint, ...]:
    return (LevelConstraint(RACK, LevelPolicy.FACTOR, hard=True, count=size),)


def subgroup(pod_set: str, size: int) -> SubgroupPolicy:
    labels = EVERYTHING_SELECTED.narrowed([Requirement(POD_SET, Operator.IN, (pod_set,))])
    return SubgroupPolicy(f"pod set {pod_set}", labels, (), size, 1, TREE, slices_of(size))


@pytest.mark.parametrize("pod_set", ["", "4f2a"])
def test_if_all_pods_ask_for_the_same_slices_they_are_constraints_of_the_gang(pod_set: str) -> None:
    gang = group_of(pod(0, OF_FOUR, pod_set))
    assert (gang.tree, gang.constraints, gang.subgroups) == (TREE, slices_of(4), ())
    assert problems_of(gang) == []
    assert gang.terms[1:] == (f"{TOPOLOGY}: {RACK} (pod w-0)", f"{SIZE}: 4 (pod w-0)")


def test_a_pod_set_with_slices_beside_others_is_a_subgroup() -> None:
    gang = group_of(pod(0, {}, "leader"), pod(1, OF_FOUR, "worker"), pod(2, {**OF_FOUR, SIZE: "2"}, "data"))
    assert (gang.tree, gang.constraints) == ("", ())
    assert gang.subgroups == (subgroup("data", 2), subgroup("worker", 4))
    assert problems_of(gang) == []


def test_the_pods_of_a_workload_have_slices_too() -> None:
    status = {"admission": {"podSetAssignments": [{"name": "worker", "count": 8}, {"name": "leader", "count": 1}]}}
    workload = Definition(DEFINITION.api_version, "Workload", "a", "job-x", "uid-of-x", 50, status=status)
    asks = {ASKED_FOR: "true", WORKLOAD: "job-x"}
    workers = marked("w-1", labels={POD_SET: "worker"}, annotations={**asks, **OF_FOUR})
    leader = marked("w-0", labels={POD_SET: "leader"}, annotations=asks)
    gang = read_gang("kueue-workload/a/job-x", workload, [leader, workers])
    assert (gang.minimum, gang.subgroups, problems_of(gang)) == (9, (subgroup("worker", 4),), [])
    alone = read_gang("kueue-workload/a/job-x", workload, [workers])
    assert (alone.tree, alone.constraints) == (TREE, slices_of(4))


@pytest.mark.parametrize(
    ("pods", "severity", "words"),
    [
        (
            [pod(0, {}), pod(1, OF_FOUR)],
            Severity.WARNING,
            f'pod "w-1" has the annotation {TOPOLOGY} without effect: other pods of the gang differ in it, and no '
            f"label {POD_SET} tells them apart; use muster.dev/topology",
        ),
        (
            [pod(0, {SIZE: "4"})],
            Severity.WARNING,
            f'pod "w-0" has the annotation {SIZE} without effect: it belongs to {TOPOLOGY}, which the pod lacks',
        ),
        (
            [pod(0, {LAYERS: "[]"})],
            Severity.WARNING,
            f'pod "w-0" has the annotation {LAYERS} without effect: only Kueue\'s topology-aware scheduling reads it, '
            f"and has chosen no domain for the pod; use {TOPOLOGY} or muster.dev/topology",
        ),
        (
            [pod(0, {TOPOLOGY: RACK})],
            Severity.BLOCKING,
            f'pod "w-0" has the annotation {TOPOLOGY} without {SIZE}: set it to the number of pods of a slice',
        ),
        (
            [pod(0, {**OF_FOUR, SIZE: "0"})],
            Severity.BLOCKING,
            f'annotation {SIZE} of pod "w-0" is "0", but it must be at least 1: set it to the number of pods of a '
            "slice",
        ),
        (
            [pod(0, {**OF_FOUR, TOPOLOGY: "a b"})],
            Severity.BLOCKING,
            f'annotation {TOPOLOGY} of pod "w-0" is "a b", but a key must be that of a label, such as '
            "topology.kubernetes.io/zone: recreate the pods with the key of a node label",
        ),
        (
            [pod(number, OF_FOUR, f"set-{number}") for number in range(MAX_POD_SETS + 1)],
            Severity.BLOCKING,
            f"its pods ask for slices of 21 pod sets (label {POD_SET}): at most 20 are supported; make fewer",
        ),
    ],
)
def test_what_is_not_used_is_named(pods: list[MarkSet], severity: Severity, words: str) -> None:
    gang = group_of(*pods)
    assert problems_of(gang) == [(severity, words)]
    assert (gang.constraints, gang.subgroups) == ((), ())


def test_pods_of_one_pod_set_that_differ_use_the_oldest_ones() -> None:
    gang = group_of(pod(0, OF_FOUR, "worker"), pod(1, {**OF_FOUR, SIZE: "2"}, "worker"))
    assert gang.constraints == slices_of(4)
    [(severity, message)] = problems_of(gang)
    assert severity is Severity.WARNING
    assert message.startswith(f'annotation {SIZE} of pod "w-1" is "2", but "4" is used, as on the oldest pod')


def test_muster_topology_replaces_slices_with_a_warning() -> None:
    gang = group_of(pod(0, {**OF_FOUR, "muster.dev/topology": "rack: pack"}))
    assert gang.constraints == (LevelConstraint("rack", LevelPolicy.PACK),)
    assert [severity for severity, _ in problems_of(gang)] == [Severity.WARNING]


def test_pod_sets_and_role_hashes_of_pods_without_slices_do_not_multiply_marks() -> None:
    marks = {gang_marks("a", {POD_SET: str(n)}, {ROLE_HASH: str(n)}) for n in range(9)}
    assert len(marks) == 1
    assert not marks.pop()
