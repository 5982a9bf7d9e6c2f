"""Muster's own annotations, in all dialects."""

import pytest

from builders.gangs.declarations import (
    coscheduling_group,
    koordinator_gang,
    koordinator_group,
    koordinator_pod,
    marked,
    pod_group,
    problems_of,
)
from builders.gangs.gang import KOORDINATOR
from muster.dialects import coscheduling, koordinator
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.marks import MarkSet
from muster.dialects.registry import gang_marks, membership_of, read_gang
from muster.gangs.facts import GangFacts, LevelConstraint, LevelPolicy, RepairPolicy, Severity

ELASTIC = "muster.dev/elastic"
REPAIR = "muster.dev/repair-policy"
DURATION = "muster.dev/expected-duration"

KOORDINATOR_GANG = {KOORDINATOR + "name": "A", KOORDINATOR + "min-available": "2"}
LIGHTWEIGHT_GANG = {
    "pod-group.scheduling.sigs.k8s.io/name": "A",
    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
}
COSCHEDULING_GANG = {"scheduling.x-k8s.io/pod-group": "A"}


def gangs_of(annotations: dict[str, str]) -> list[GangFacts]:
    """A gang of each dialect whose one pod has these annotations."""
    coscheduling_pod = marked(labels=COSCHEDULING_GANG, annotations=annotations)
    return [
        koordinator_gang(marked(annotations=KOORDINATOR_GANG | annotations)),
        read_gang("lightweight/a/A", None, [marked(labels=LIGHTWEIGHT_GANG, annotations=annotations)]),
        read_gang("coscheduling/a/A", coscheduling_group({"minMember": 2}), [coscheduling_pod]),
    ]


def repairing(pods: list[MarkSet], definition: Definition | None = None) -> GangFacts:
    return read_gang("koordinator/a/A", definition, pods)


def repair_pod(name: str, seconds: int, policy: str) -> MarkSet:
    return marked(name, annotations=KOORDINATOR_GANG | {REPAIR: policy}, created_seconds=seconds)


@pytest.mark.parametrize(
    ("annotations", "policy"),
    [
        ({}, RepairPolicy.YIELD),
        ({REPAIR: "Yield"}, RepairPolicy.YIELD),
        ({REPAIR: "Wait"}, RepairPolicy.WAIT),
        ({REPAIR: "Evict"}, RepairPolicy.EVICT),
        ({REPAIR: ""}, RepairPolicy.YIELD),
    ],
)
def test_g22_pods_of_any_dialect_may_set_the_repair_policy(annotations: dict[str, str], policy: RepairPolicy) -> None:
    for gang in gangs_of(annotations):
        assert (gang.repair_policy, gang.problems) == (policy, ())


@pytest.mark.parametrize("kind", [koordinator.DEFINITION, coscheduling.DEFINITION], ids=["koordinator", "coscheduling"])
def test_g22_so_do_pod_groups(kind: DefinitionKind) -> None:
    definition = pod_group(kind, {"minMember": 2}, {REPAIR: "Evict"})
    dialect = "koordinator" if kind is koordinator.DEFINITION else "coscheduling"
    gang = read_gang(f"{dialect}/a/A", definition, [])
    assert (gang.repair_policy, gang.problems) == (RepairPolicy.EVICT, ())


def test_pods_take_precedence_over_the_pod_group() -> None:
    definition = pod_group(koordinator.DEFINITION, {"minMember": 2}, {REPAIR: "Wait"})
    gang = repairing([repair_pod("w-0", 1, "Evict")], definition)
    assert gang.repair_policy is RepairPolicy.EVICT
    assert problems_of(gang) == [
        (
            Severity.WARNING,
            f'annotation {REPAIR} of PodGroup "a/A" is "Wait", but annotation {REPAIR} of pod "w-0" is "Evict", which '
            "is used",
        )
    ]


def test_of_pods_that_differ_the_oldest_decides() -> None:
    gang = repairing([repair_pod("w-0", 2, "Wait"), repair_pod("w-1", 1, "Evict")])
    assert gang.repair_policy is RepairPolicy.EVICT
    assert [severity for severity, _ in problems_of(gang)] == [Severity.WARNING]


@pytest.mark.parametrize("text", ["evict", "Never", "x" * 1000])
def test_a_malformed_policy_is_quoted_and_the_gang_waits(text: str) -> None:
    for gang in gangs_of({REPAIR: text}):
        assert gang.repair_policy is RepairPolicy.YIELD
        ((severity, message),) = problems_of(gang)
        assert severity is Severity.WARNING
        assert text[:60] in message
        assert message.endswith("which is none of Yield, Evict and Wait: Yield is used instead")


@pytest.mark.parametrize("text", ["soon", "5 m", "0", "-90s", "1d", "x" * 1000, "9" * 1000])
def test_a_malformed_duration_is_quoted(text: str) -> None:
    for gang in gangs_of({DURATION: text}):
        ((severity, message),) = problems_of(gang)
        assert severity is Severity.WARNING
        assert f'annotation {DURATION} of pod "w-0" is "{text[:60]}' in message
        assert len(message) < 400


def test_of_many_malformed_durations_the_oldest_pods_is_reported() -> None:
    pods = [
        marked(f"w-{i}", annotations=KOORDINATOR_GANG | {DURATION: f"bad-{i}"}, created_seconds=9 - i) for i in range(3)
    ]
    ((_, message),) = problems_of(repairing(pods))
    assert '"bad-2"' in message


@pytest.mark.parametrize("text", ["90s", "15m", "1h30m", "90", "1.5", ""])
def test_valid_durations_do_not_add_mark_sets(text: str) -> None:
    with_duration = gang_marks("a", None, KOORDINATOR_GANG | {DURATION: text})
    assert with_duration == gang_marks("a", None, KOORDINATOR_GANG)


@pytest.mark.parametrize("annotations", [{REPAIR: "Evict"}, {DURATION: "90s"}, {DURATION: "soon"}, {REPAIR: "?"}])
def test_a_pod_with_nothing_else_is_plain(annotations: dict[str, str]) -> None:
    assert membership_of(gang_marks("a", {"app": "web"}, annotations)) is None


def test_musters_annotations_are_not_marks_of_another_dialect() -> None:
    group = koordinator_group({"minMember": 1})
    pod = koordinator_pod(min_available="1")
    own = marked(annotations=dict(pod.marks.annotations) | {REPAIR: "Evict"})
    assert repairing([own], group).problems == ()


TOPOLOGY = "muster.dev/topology"
TREE = "muster.dev/topology-tree"


def test_pods_of_any_dialect_may_set_topology_and_tree() -> None:
    for gang in gangs_of({TOPOLOGY: "rack: hard pack; node: range(2,4)", TREE: " east "}):
        assert gang.tree == "east"
        assert gang.constraints == (
            LevelConstraint("rack", LevelPolicy.PACK, hard=True),
            LevelConstraint("node", LevelPolicy.RANGE, minimum=2, maximum=4),
        )
        assert gang.problems == ()


def test_a_gang_without_topology_annotation_has_no_constraints() -> None:
    for gang in gangs_of({TOPOLOGY: "", TREE: ""}):
        assert (gang.tree, gang.constraints, gang.problems) == ("", (), ())


def test_a_definition_sets_it_for_all_pods_but_pods_take_precedence() -> None:
    group = pod_group(coscheduling.DEFINITION, {"minMember": 2}, {TOPOLOGY: "rack: pack", TREE: "west"})
    gang = read_gang("coscheduling/a/A", group, [marked(labels=COSCHEDULING_GANG)])
    assert (gang.tree, gang.constraints) == ("west", (LevelConstraint("rack", LevelPolicy.PACK),))
    pod = marked(labels=COSCHEDULING_GANG, annotations={TOPOLOGY: "rack: spread"})
    gang = read_gang("coscheduling/a/A", group, [pod])
    assert gang.constraints == (LevelConstraint("rack", LevelPolicy.SPREAD),)
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.WARNING
    assert f'annotation {TOPOLOGY} of PodGroup "a/A" is "rack: pack", but' in message


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({TOPOLOGY: "rack: bunch"}, f'annotation {TOPOLOGY} of pod "w-0" is "bunch" on level "rack", but a policy is '),
        ({TREE: "  "}, f'annotation {TREE} of pod "w-0" is "  ", but a tree\'s name has '),
    ],
)
def test_a_malformed_topology_blocks_the_gang(annotations: dict[str, str], message: str) -> None:
    for gang in gangs_of(annotations):
        ((severity, said_of_it),) = problems_of(gang)
        assert severity is Severity.BLOCKING
        assert said_of_it.startswith(message)
        assert (gang.tree, gang.constraints) == ("", ())


def test_p14_a_contradictory_topology_blocks_the_gang() -> None:
    for gang in gangs_of({TOPOLOGY: "node: range(3,4), factor(5)"}):
        assert problems_of(gang) == [
            (
                Severity.BLOCKING,
                f'annotation {TOPOLOGY} of pod "w-0": constraints "node: range(3,4)" and "node: factor(5)" contradict '
                "each other: no multiple of 5 is from 3 to 4",
            )
        ]


@pytest.mark.parametrize(("text", "whole"), [("true", False), ("false", True), ("", False)])
def test_pods_of_any_dialect_may_forbid_that_preemption_shrinks_their_gang(text: str, whole: bool) -> None:
    for gang in gangs_of({ELASTIC: text}):
        assert (gang.evicted_whole, gang.problems) == (whole, ())


def test_a_pod_group_may_forbid_it_too() -> None:
    gang = read_gang("coscheduling/a/A", pod_group(coscheduling.DEFINITION, {"minMember": 2}, {ELASTIC: "false"}), [])
    assert (gang.evicted_whole, gang.terms[-1]) == (True, f"{ELASTIC}: false (PodGroup a/A)")


@pytest.mark.parametrize("text", ["no", "False", "0", "x" * 1000])
def test_a_malformed_elastic_is_quoted_and_the_gang_is_not_shrunk(text: str) -> None:
    for gang in gangs_of({ELASTIC: text}):
        assert gang.evicted_whole
        ((severity, message),) = problems_of(gang)
        assert severity is Severity.WARNING
        assert text[:60] in message
        assert message.endswith("which is neither true nor false: none of its pods is evicted alone")
