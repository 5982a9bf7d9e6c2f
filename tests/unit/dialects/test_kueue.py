"""Kueue's plain pod groups: a label and an annotation that Kueue reads too."""

import pytest

from builders.gangs.declarations import marked, problems_of
from muster.dialects.marks import MarkSet, Membership
from muster.dialects.registry import gang_marks, membership_of, read_gang, wanted_rank
from muster.gangs.facts import GangFacts, MatchPolicy, Severity

PREFIX = "kueue.x-k8s.io/"
NAME = PREFIX + "pod-group-name"
TOTAL = PREFIX + "pod-group-total-count"
FAST = PREFIX + "pod-group-fast-admission"
PARENT = PREFIX + "pod-suspending-parent"
INDEX = PREFIX + "pod-group-pod-index"
COSCHEDULING = "scheduling.x-k8s.io/pod-group"


def member(
    name: str = "w-0",
    total: str | None = "3",
    annotations: dict[str, str] | None = None,
    *,
    created_seconds: int = 100,
) -> MarkSet:
    keyed = {**(annotations or {}), **({} if total is None else {TOTAL: total})}
    return marked(name, labels={NAME: "A"}, annotations=keyed, created_seconds=created_seconds)


def gang_of(*pods: MarkSet) -> GangFacts:
    return read_gang("kueue/a/A", None, pods)


def test_a_group() -> None:
    assert gang_of(member()) == GangFacts(
        id="kueue/a/A",
        dialect="kueue",
        namespace="a",
        name="A",
        incarnation="uid-of-w-0",
        minimum=3,
        total=3,
        created_seconds=100,
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
        terms=(f"{TOTAL}: 3 (pod w-0)",),
    )


@pytest.mark.parametrize(
    ("labels", "annotations", "gang_id"),
    [
        ({NAME: "A"}, {TOTAL: "3"}, "kueue/a/A"),
        ({}, {NAME: "A", TOTAL: "3"}, "kueue/a/A"),
        ({NAME: "A"}, {NAME: "B"}, "kueue/a/A"),
        ({NAME: ""}, {NAME: "B"}, "kueue/a/B"),
    ],
)
def test_the_label_or_else_the_annotation_names_the_group(
    labels: dict[str, str], annotations: dict[str, str], gang_id: str
) -> None:
    assert membership_of(gang_marks("a", labels, annotations)) == Membership(gang_id)


def test_two_names_are_reported() -> None:
    gang = gang_of(marked(labels={NAME: "A"}, annotations={NAME: "B", TOTAL: "1"}))
    assert problems_of(gang) == [
        (Severity.WARNING, f'pod "w-0" has annotation {NAME} "B", but label {NAME} "A": the label is used')
    ]


@pytest.mark.parametrize(
    ("labels", "annotations", "problem"),
    [
        ({NAME: ""}, {TOTAL: "3"}, f"label {NAME} is empty"),
        ({NAME: "a/b"}, {}, f'label {NAME} is "a/b"'),
        ({}, {NAME: "-"}, f'annotation {NAME} is "-"'),
        ({}, {TOTAL: "3"}, f"{TOTAL} without the gang's name: add it (label {NAME})"),
    ],
)
def test_a_name_that_is_no_name_is_the_pods_problem(
    labels: dict[str, str], annotations: dict[str, str], problem: str
) -> None:
    membership = membership_of(gang_marks("a", labels, annotations))
    assert membership is not None
    assert membership.gang_id == ""
    assert membership.problem.startswith(problem)


@pytest.mark.parametrize("value", ["five", "0", "-1", "", "3.0", "99999999999"])
def test_an_invalid_total_blocks_and_is_quoted(value: str) -> None:
    gang = gang_of(member(total=value))
    ((severity, message),) = problems_of(gang)
    assert (gang.minimum, severity) == (0, Severity.BLOCKING)
    assert message.startswith(f'annotation {TOTAL} of pod "w-0" is "{value}"')
    assert message.endswith("set it to the number of pods of the group, on each of them")


def test_a_missing_total_blocks() -> None:
    assert problems_of(gang_of(member(total=None))) == [
        (
            Severity.BLOCKING,
            f"no pod of the group has the annotation {TOTAL}: set it to the number of pods of the group, on each of "
            "them",
        )
    ]


def test_of_contradictory_totals_the_oldest_pods_is_used_with_a_warning() -> None:
    gang = gang_of(member("w-1", "4", created_seconds=5), member("w-0", "3", created_seconds=6))
    assert gang.minimum == 4
    assert problems_of(gang) == [
        (
            Severity.WARNING,
            f'annotation {TOTAL} of pod "w-0" is "3", but "4" is used, as on the oldest pod: give all pods of a gang '
            "the same value",
        )
    ]


@pytest.mark.parametrize(
    "annotations",
    [
        {FAST: "true"},
        {FAST: ""},
        {PARENT: "statefulset"},
        {PARENT: "leaderworkerset.x-k8s.io/leaderworkerset"},
    ],
)
def test_pods_of_groups_that_kueue_admits_before_their_last_pod_exists_are_plain(annotations: dict[str, str]) -> None:
    assert membership_of(member("w-0", "3", annotations).marks) is None
    assert membership_of(member("w-0", "many", annotations).marks) is None
    incomplete = marked(annotations={**annotations, "pod-group.scheduling.sigs.k8s.io/match-policy": "x"})
    membership = membership_of(incomplete.marks)
    assert membership is not None
    assert membership.problem


@pytest.mark.parametrize("annotation", [FAST, PARENT])
def test_such_pods_may_belong_to_a_gang_of_another_dialect(annotation: str) -> None:
    marks = gang_marks("a", {NAME: "A", COSCHEDULING: "c"}, {TOTAL: "3", annotation: "true"})
    assert membership_of(marks) == Membership("coscheduling/a/c")


@pytest.mark.parametrize(
    "annotations", [{PREFIX + "role-hash": "4f"}, {PARENT: "deployment"}, {FAST: "true"}, {PREFIX + "workload": "w"}]
)
def test_pods_that_kueue_manages_without_a_group_are_plain(annotations: dict[str, str]) -> None:
    labels = {PREFIX + "queue-name": "q", PREFIX + "managed": "true"}
    assert membership_of(gang_marks("a", labels, annotations)) is None


@pytest.mark.parametrize(
    ("labels", "pod_group", "gang_id"),
    [
        ({COSCHEDULING: "c"}, "", "coscheduling/a/c"),
        ({}, "n", "native/a/n"),
    ],
)
def test_marks_of_any_other_dialect_apply_alone_and_without_a_warning(
    labels: dict[str, str], pod_group: str, gang_id: str
) -> None:
    marks = gang_marks("a", {NAME: "A", **labels}, {TOTAL: "3"}, pod_group)
    assert membership_of(marks) == Membership(gang_id)
    gang = read_gang(gang_id, None, [MarkSet(marks, member().oldest)])
    assert not [message for _, message in problems_of(gang) if "kueue" in message]


def test_incomplete_marks_of_another_dialect_are_reported() -> None:
    lightweight = "pod-group.scheduling.sigs.k8s.io/min-available"
    gang = gang_of(marked(labels={NAME: "A", lightweight: "2"}, annotations={TOTAL: "3"}))
    assert gang.minimum == 3
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.WARNING
    assert f"marks of the dialect lightweight ({lightweight}); only those of kueue are used" in message


@pytest.mark.parametrize(
    ("index", "rank"), [("0", 0), ("17", 17), ("", -1), ("-1", -1), ("1.5", -1), ("٣", -1), ("9" * 10, -1)]
)
def test_the_index_label_is_the_wanted_rank(index: str, rank: int) -> None:
    assert wanted_rank("kueue/a/A", None, {INDEX: index}) == rank
    assert wanted_rank("coscheduling/a/A", None, {INDEX: index}) == -1


def test_indexes_and_role_hashes_do_not_multiply_the_distinct_marks() -> None:
    marks = {
        gang_marks("a", {NAME: "A", INDEX: str(index)}, {TOTAL: "9", PREFIX + "role-hash": f"{index:x}"})
        for index in range(9)
    }
    assert len(marks) == 1
