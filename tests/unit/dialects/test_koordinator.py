"""Koordinator's gangs: annotations, PodGroup, their precedence, and messages about malformed values."""

import pytest

from builders.gangs.declarations import (
    koordinator_gang,
    koordinator_group,
    koordinator_pod,
    marked,
    problems_of,
)
from builders.gangs.gang import KOORDINATOR
from muster.dialects.definitions import Definition
from muster.dialects.marks import MarkSet
from muster.dialects.registry import gang_marks, membership_of, wanted_rank
from muster.gangs.facts import GangFacts, GangMode, ObjectReference, Severity

BLOCKING, WARNING = Severity.BLOCKING, Severity.WARNING
LABEL = "pod-group.scheduling.sigs.k8s.io"


def only_problem(gang: GangFacts) -> tuple[Severity, str]:
    (problem,) = problems_of(gang)
    return problem


# -- membership


@pytest.mark.parametrize(
    ("labels", "annotations", "gang_id"),
    [
        ({}, {KOORDINATOR + "name": "train"}, "koordinator/a/train"),
        ({LABEL: "train"}, {}, "koordinator/a/train"),
        ({LABEL: "train"}, {KOORDINATOR + "name": "train"}, "koordinator/a/train"),
        ({LABEL: "by-label"}, {KOORDINATOR + "name": "by-annotation"}, "koordinator/a/by-label"),
        ({LABEL: ""}, {KOORDINATOR + "name": "train"}, "koordinator/a/train"),
    ],
)
def test_a_pod_names_its_gang(labels: dict[str, str], annotations: dict[str, str], gang_id: str) -> None:
    membership = membership_of(gang_marks("a", labels, annotations))
    assert membership is not None
    assert (membership.gang_id, membership.problem) == (gang_id, "")


@pytest.mark.parametrize(
    ("labels", "annotations", "words"),
    [
        ({}, {KOORDINATOR + "name": ""}, "annotation gang.scheduling.koordinator.sh/name is empty"),
        ({LABEL: ""}, {}, "label pod-group.scheduling.sigs.k8s.io is empty"),
        ({}, {KOORDINATOR + "name": "ns/train"}, '"ns/train"'),
        ({}, {KOORDINATOR + "name": "x" * 1_000_000}, "…"),
        ({LABEL: "-x"}, {KOORDINATOR + "name": "fine"}, '"-x"'),
    ],
)
def test_a_name_that_is_no_name_is_the_pods_problem(
    labels: dict[str, str], annotations: dict[str, str], words: str
) -> None:
    membership = membership_of(gang_marks("a", labels, annotations))
    assert membership is not None
    assert membership.gang_id == ""
    assert words in membership.problem
    assert len(membership.problem) < 350


def test_a_label_and_an_annotation_that_differ_are_reported() -> None:
    pod = marked(labels={LABEL: "A"}, annotations={KOORDINATOR + "name": "B", KOORDINATOR + "min-available": "2"})
    gang = koordinator_gang(pod)
    assert gang.minimum == 2
    assert only_problem(gang) == (
        WARNING,
        'pod "w-0" has annotation gang.scheduling.koordinator.sh/name "B", but label pod-group.scheduling.sigs.k8s.io '
        '"A": the label is used',
    )


# -- what is declared, by whom


def test_annotations_alone() -> None:
    gang = koordinator_gang(
        koordinator_pod(
            min_available="3", total_number="5", mode="NonStrict", waiting_time="20m", groups='["a/A","b/B"]'
        )
    )
    assert gang == GangFacts(
        id="koordinator/a/A",
        dialect="koordinator",
        namespace="a",
        name="A",
        incarnation="uid-of-w-0",
        minimum=3,
        total=5,
        mode=GangMode.NON_STRICT,
        group=("koordinator/a/A", "koordinator/b/B"),
        waiting_time_seconds=1200.0,
        created_seconds=100,
        terms=gang.terms,
    )


def test_defaults() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="3"))
    assert (gang.total, gang.mode, gang.group, gang.waiting_time_seconds) == (3, GangMode.STRICT, (), 600.0)
    assert gang.problems == ()


def test_a_pod_group_alone() -> None:
    group = koordinator_group(
        {"minMember": 4, "scheduleTimeoutSeconds": 90}, total_number="6", mode="NonStrict", groups='["a/A","c/C"]'
    )
    gang = koordinator_gang(marked(labels={LABEL: "A"}), definition=group)
    assert gang == GangFacts(
        id="koordinator/a/A",
        dialect="koordinator",
        namespace="a",
        name="A",
        incarnation="uid-of-A",
        minimum=4,
        total=6,
        mode=GangMode.NON_STRICT,
        group=("koordinator/a/A", "koordinator/c/C"),
        waiting_time_seconds=90.0,
        created_seconds=50,
        definition=ObjectReference("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", "a", "A", "uid-of-A"),
        terms=gang.terms,
    )


def test_g24_a_pod_group_without_pods_is_a_gang() -> None:
    gang = koordinator_gang(definition=koordinator_group({"minMember": 4}))
    assert (gang.minimum, gang.incarnation, gang.problems) == (4, "uid-of-A", ())


def test_the_pod_groups_annotation_takes_precedence_over_its_spec() -> None:
    group = koordinator_group({"minMember": 2, "scheduleTimeoutSeconds": 90}, waiting_time="30s")
    gang = koordinator_gang(definition=group)
    assert gang.waiting_time_seconds == 30.0
    assert only_problem(gang)[0] is WARNING


@pytest.mark.parametrize("timeout", [0, None])
def test_a_timeout_of_zero_means_the_default(timeout: int | None) -> None:
    gang = koordinator_gang(definition=koordinator_group({"minMember": 2, "scheduleTimeoutSeconds": timeout}))
    assert (gang.waiting_time_seconds, gang.problems) == (600.0, ())


def test_g25_pods_go_before_the_pod_group() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="3"), definition=koordinator_group({"minMember": 5}))
    assert (gang.minimum, gang.total) == (3, 3)
    severity, message = only_problem(gang)
    assert severity is WARNING
    assert 'PodGroup "a/A" is "5"' in message
    assert 'pod "w-0" is "3", which is used' in message


def test_g25_equal_values_in_other_words_are_no_difference() -> None:
    gang = koordinator_gang(
        koordinator_pod(min_available="3", waiting_time="10m", groups='["a/A", "b/B"]', mode="Strict"),
        definition=koordinator_group(
            {"minMember": 3, "scheduleTimeoutSeconds": 600}, groups='["b/B","a/A"]', mode="Strict"
        ),
    )
    assert gang.problems == ()


def test_g25_a_malformed_pod_group_is_ignored_if_pods_have_the_value() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="3"), definition=koordinator_group({"minMember": 0}))
    assert gang.minimum == 3
    assert only_problem(gang)[0] is WARNING


# -- required marks


def test_g23_neither_pod_group_nor_annotation() -> None:
    gang = koordinator_gang(marked(labels={LABEL: "A"}))
    assert (gang.minimum, gang.total) == (0, 0)
    severity, message = only_problem(gang)
    assert severity is BLOCKING
    assert message.startswith(
        'PodGroup "a/A" (scheduling.sigs.k8s.io/v1alpha1) does not exist yet and no pod of the gang has the annotation '
        "gang.scheduling.koordinator.sh/min-available"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("five", '"five", which is not a whole number'),
        ("", '""'),
        ("0", '"0", but it must be at least 1'),
        ("-1", '"-1", but it must be at least 1'),
        ("99999999999", "at most"),
        ("5" * 1_000_000, "…"),
    ],
)
def test_g26_a_malformed_minimum_blocks_and_is_quoted(value: str, words: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available=value))
    assert gang.blocked
    assert (gang.minimum, gang.total) == (0, 0)
    severity, message = only_problem(gang)
    assert severity is BLOCKING
    assert message.startswith('annotation gang.scheduling.koordinator.sh/min-available of pod "w-0" is ')
    assert words in message
    assert message.endswith("set it to the number of pods that must start together")
    assert len(message) < 350


def test_g26_a_malformed_minimum_is_not_replaced_by_the_pod_groups() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="five"), definition=koordinator_group({"minMember": 3}))
    assert gang.blocked
    assert gang.minimum == 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, 'spec.minMember of PodGroup "a/A" is missing: set it'),
        ({"minMember": None}, "is missing"),
        ({"minMember": 0}, '"0", but it must be at least 1'),
        ({"minMember": -1}, '"-1", but it must be at least 1'),
        ({"minMember": "many"}, '"many", which is not a whole number'),
        ({"minMember": 2**40}, "at most"),
    ],
)
def test_a_malformed_min_member_blocks(spec: dict[str, object], words: str) -> None:
    gang = koordinator_gang(marked(labels={LABEL: "A"}), definition=koordinator_group(spec))
    severity, message = only_problem(gang)
    assert severity is BLOCKING
    assert words in message


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("a/A", '"a/A", which is not a JSON list such as ["namespace/name","namespace/name"]'),
        ('["A"]', 'a list with "A" in it, which is not "namespace/name"'),
        ("[" + ",".join(f'"a/g{i}"' for i in range(101)) + "]", "at most 100"),
        ("[" + ",".join(f'"a/g{i}"' for i in range(100)) + "]", "at most 100"),
        ("[" + '"a/A",' * 100_000 + "]", "…"),
    ],
    ids=["no-list", "no-namespace", "101", "100-and-itself", "huge"],
)
def test_g29_malformed_groups_block(groups: str, words: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="3", groups=groups))
    severity, message = only_problem(gang)
    assert severity is BLOCKING
    assert message.startswith('annotation gang.scheduling.koordinator.sh/groups of pod "w-0" is ')
    assert words in message
    assert gang.group == ()
    assert len(message) < 400


def test_g15_all_problems_are_reported_in_a_fixed_order() -> None:
    gang = koordinator_gang(
        koordinator_pod(min_available="x", total_number="y", mode="z", waiting_time="q", groups="p")
    )
    assert [severity for severity, _ in problems_of(gang)] == [BLOCKING, WARNING, WARNING, WARNING, BLOCKING]
    for (_, message), mark in zip(
        problems_of(gang), ["min-available", "total-number", "mode", "waiting-time", "groups"], strict=True
    ):
        assert f"{KOORDINATOR}{mark}" in message


# -- optional marks


@pytest.mark.parametrize("mode", ["Strct", "strict", "NONSTRICT", "Strict "])
def test_g27_an_unknown_mode_is_strict_with_a_warning(mode: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="3", mode=mode))
    assert gang.mode is GangMode.STRICT
    assert not gang.blocked
    assert only_problem(gang) == (
        WARNING,
        f'annotation gang.scheduling.koordinator.sh/mode of pod "w-0" is "{mode}", which is neither Strict nor '
        "NonStrict: Strict is used instead",
    )


def test_g28_a_total_below_the_minimum_is_raised_to_the_minimum() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="5", total_number="2"))
    assert (gang.minimum, gang.total) == (5, 5)
    severity, message = only_problem(gang)
    assert severity is WARNING
    assert "is 2, below the minimum: 5" in message


@pytest.mark.parametrize(("total", "expected"), [("5", 5), ("6", 6), ("+7", 7)])
def test_a_total_from_the_minimum_on_is_fine(total: str, expected: int) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="5", total_number=total))
    assert (gang.total, gang.problems) == (expected, ())


@pytest.mark.parametrize("total", ["lots", "0", "-3", "99999999999"])
def test_a_malformed_total_is_the_minimum_with_a_warning(total: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="5", total_number=total))
    assert gang.total == 5
    severity, message = only_problem(gang)
    assert severity is WARNING
    assert f'"{total}"' in message


@pytest.mark.parametrize("time", ["600", "soon", "-1s", "0s", "x" * 100_000])
def test_a_malformed_waiting_time_is_the_default_with_a_warning(time: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="5", waiting_time=time))
    assert gang.waiting_time_seconds == 600.0
    severity, message = only_problem(gang)
    assert severity is WARNING
    assert message.endswith("600s is used instead")
    assert len(message) < 300


@pytest.mark.parametrize("timeout", [-1, "soon", 2**40, True])
def test_a_malformed_timeout_is_the_default_with_a_warning(timeout: object) -> None:
    gang = koordinator_gang(definition=koordinator_group({"minMember": 2, "scheduleTimeoutSeconds": timeout}))
    assert gang.waiting_time_seconds == 600.0
    assert only_problem(gang)[0] is WARNING


def test_empty_optional_annotations_count_as_absent() -> None:
    empty = {"total_number": "", "mode": "", "waiting_time": "", "groups": ""}
    gang = koordinator_gang(koordinator_pod(min_available="3", **empty), definition=koordinator_group({}, **empty))
    assert (gang.total, gang.mode, gang.group, gang.waiting_time_seconds) == (3, GangMode.STRICT, (), 600.0)
    assert [severity for severity, _ in problems_of(gang)] == [WARNING]  # spec.minMember is missing


# -- groups


@pytest.mark.parametrize("groups", ["[]", '["a/A"]', '["a/A","a/A"]'])
def test_g13_a_group_of_itself_alone_is_none(groups: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="3", groups=groups))
    assert (gang.group, gang.problems) == ((), ())


def test_a_list_that_leaves_the_gang_out_is_taken_with_it() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="3", groups='["c/C","b/B"]'))
    assert gang.group == ("koordinator/a/A", "koordinator/b/B", "koordinator/c/C")
    severity, message = only_problem(gang)
    assert severity is WARNING
    assert '"a/A", the gang itself' in message


# -- pods that disagree


def test_the_oldest_pod_decides_and_the_other_is_named() -> None:
    older = koordinator_pod("w-9", 100, min_available="3")
    younger = koordinator_pod("w-1", 101, min_available="4")
    gang = koordinator_gang(younger, older)
    assert gang.minimum == 3
    assert gang.incarnation == "uid-of-w-9"
    assert only_problem(gang) == (
        WARNING,
        'annotation gang.scheduling.koordinator.sh/min-available of pod "w-1" is "4", but "3" is used, as on the '
        "oldest pod: give all pods of a gang the same value",
    )


def test_of_pods_of_one_second_the_first_by_name_decides() -> None:
    assert (
        koordinator_gang(koordinator_pod("b", min_available="4"), koordinator_pod("a", min_available="3")).minimum == 3
    )


def test_a_pod_without_the_mark_does_not_decide() -> None:
    silent = koordinator_pod("w-0", 1)
    gang = koordinator_gang(silent, koordinator_pod("w-1", min_available="3", mode="NonStrict"))
    assert (gang.minimum, gang.mode, gang.problems) == (3, GangMode.NON_STRICT, ())
    assert gang.created_seconds == 1


def test_only_the_oldest_of_many_that_differ_is_named() -> None:
    pods = [koordinator_pod(f"w-{i}", i, min_available=str(i + 1)) for i in range(20)]
    (problem,) = koordinator_gang(*reversed(pods)).problems
    assert 'pod "w-1" is "2", but "1" is used' in problem.message


@pytest.mark.parametrize("mark", ["total_number", "mode", "waiting_time", "groups"])
def test_disagreement_is_reported_for_each_mark(mark: str) -> None:
    values = {
        "total_number": ("7", "8"),
        "mode": ("Strict", "NonStrict"),
        "waiting_time": ("1m", "2m"),
        "groups": ('["a/A","b/B"]', '["a/A","c/C"]'),
    }[mark]
    pods: list[MarkSet] = [
        koordinator_pod(f"w-{i}", min_available="3", **{mark: value}) for i, value in enumerate(values)
    ]
    severity, message = only_problem(koordinator_gang(*pods))
    assert severity is WARNING
    assert f'{mark.replace("_", "-")} of pod "w-1" is ' in message


def test_g35_the_incarnation_is_the_definitions_if_there_is_one() -> None:
    pod = koordinator_pod(min_available="3")
    definition: Definition = koordinator_group({"minMember": 3})
    assert koordinator_gang(pod).incarnation == "uid-of-w-0"
    assert koordinator_gang(pod, definition=definition).incarnation == "uid-of-A"


INDEX = "gang.scheduling.koordinator.sh/network-topology-index"


@pytest.mark.parametrize(("text", "rank"), [("0", 0), ("12", 12), ("007", 7), ("", -1), ("-1", -1), ("1" * 10, -1)])
def test_index_is_the_rank_that_a_member_asks_for(text: str, rank: int) -> None:
    assert wanted_rank("koordinator/ml/g", {INDEX: text}) == rank
    assert wanted_rank("coscheduling/ml/g", {INDEX: text}) == -1


def test_valid_indexes_do_not_distinguish_the_marks_of_pods() -> None:
    marks = {gang_marks("ml", {}, {KOORDINATOR + "name": "g", INDEX: str(index)}) for index in range(100)}
    assert len(marks) == 1


def test_invalid_index_is_quoted_in_a_warning() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="1", network_topology_index="first"))
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.WARNING
    assert f'annotation {INDEX} of pod "w-0" is "first", which is not a whole number' in message
