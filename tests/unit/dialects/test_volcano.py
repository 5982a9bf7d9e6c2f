"""Volcano's PodGroups, and pods that name one by the annotation of kube-batch's dialect."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from builders.gangs.declarations import marked, pod_group, problems_of
from muster.dialects import kube_batch, volcano
from muster.dialects.definitions import Definition
from muster.dialects.marks import MarkSet
from muster.dialects.registry import (
    counts_pods,
    defined_gang,
    event_reason,
    gang_marks,
    membership_of,
    read_gang,
    wanted_rank,
)
from muster.gangs.facts import (
    GangFacts,
    LevelConstraint,
    LevelPolicy,
    MatchPolicy,
    ObjectReference,
    Severity,
    SubgroupPolicy,
)
from muster.gangs.selectors import EVERYTHING_SELECTED, Operator, Requirement

NAME = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"
INDEX = "volcano.sh/task-index"
ID = "kube-batch/a/A"


def group(spec: Mapping[str, Any]) -> Definition:
    return pod_group(volcano.DEFINITION, spec)


def of_tasks(**pods: int) -> list[MarkSet]:
    """Mark sets of this many pods of each task."""
    found = [(marked(f"{task}-0", annotations={NAME: "A", TASK: task}), number) for task, number in pods.items()]
    return [replace(each, pods=number) for each, number in found if number]


def gang_of(
    spec: Mapping[str, Any], pods: list[MarkSet] | None = None, priorities: Mapping[str, int] | None = None
) -> GangFacts:
    return read_gang(ID, group(spec), pods or [marked(annotations={NAME: "A"})], priorities or {})


def test_a_gang() -> None:
    spec = {"minMember": 3, "queue": "q", "minResources": {"cpu": "1500m"}, "priorityClassName": "high"}
    assert gang_of(spec, priorities={"high": 1000}) == GangFacts(
        id=ID,
        dialect="volcano",
        namespace="a",
        name="A",
        incarnation="uid-of-A",
        minimum=3,
        total=3,
        priority=1000,
        created_seconds=50,
        definition=ObjectReference("scheduling.volcano.sh/v1beta1", "PodGroup", "a", "A", "uid-of-A"),
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
        resources=(("cpu", 1500),),
        terms=(
            "minMember: 3 (PodGroup a/A)",
            'minResources: {"cpu":"1500m"} (PodGroup a/A)',
            "priorityClassName: high (PodGroup a/A)",
            "queue: q (PodGroup a/A)",
        ),
    )
    assert event_reason(ID) == "Unschedulable"


def test_minimum_resources_under_the_names_of_a_quota_are_those_of_nodes() -> None:
    """As Volcano's job controller declares them."""
    least = {"count/pods": "3", "cpu": "3", "requests.cpu": "4", "limits.cpu": "9", "requests.nvidia.com/gpu": "8"}
    assert gang_of({"minMember": 3, "minResources": least}).resources == (
        ("cpu", 4000),
        ("nvidia.com/gpu", 8),
        ("pods", 3),
    )
    (problem,) = gang_of({"minMember": 3, "minResources": {"requests.cpu": "lots"}}).problems
    assert '"requests.cpu"' in problem.message


def test_pods_and_both_kinds_of_pod_group_name_one_gang() -> None:
    membership = membership_of(marked(annotations={NAME: "A"}).marks)
    assert membership is not None
    ids = {membership.gang_id, defined_gang(group({})), defined_gang(pod_group(kube_batch.DEFINITION, {}))}
    assert ids == {ID}


def test_the_pod_group_decides_the_dialect() -> None:
    pods = [marked(annotations={NAME: "A"})]
    spec = {"minMember": 2}
    none = read_gang(ID, None, pods)
    assert "scheduling.volcano.sh/v1beta1) does not exist yet" in none.problems[0].message
    assert [
        read_gang(ID, pod_group(kind, spec), pods).dialect for kind in (kube_batch.DEFINITION, volcano.DEFINITION)
    ] == ["kube-batch", "volcano"]


def test_of_two_kinds_of_pod_group_the_older_one_is_used_with_a_warning() -> None:
    older, younger = group({"minMember": 2}), pod_group(kube_batch.DEFINITION, {"minMember": 3})
    gang = read_gang(ID, older, [marked(annotations={NAME: "A"})], rivals=[younger])
    assert (gang.dialect, gang.minimum) == ("volcano", 2)
    assert problems_of(gang) == [
        (
            Severity.WARNING,
            'PodGroup "a/A" (scheduling.incubator.k8s.io/v1alpha1) defines this gang too; PodGroup "A" '
            "(scheduling.volcano.sh/v1beta1) is older and is used instead",
        )
    ]


@pytest.mark.parametrize("spec", [{}, {"minMember": None}, {"minMember": 0}])
def test_without_a_minimum_each_pod_may_start_on_its_own(spec: dict[str, Any]) -> None:
    gang = gang_of(spec)
    assert (gang.minimum, gang.problems) == (1, ())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"minMember": -1}, '"-1", but it must be at least 1'),
        ({"minMember": "five"}, '"five", which is not a whole number'),
        ({"minMember": False}, '"false", which is not a whole number'),
        ({"minMember": 2**31}, "at most 2147483647"),
    ],
)
def test_an_invalid_minimum_blocks_and_is_quoted(spec: dict[str, Any], words: str) -> None:
    gang = gang_of(spec)
    ((severity, message),) = problems_of(gang)
    assert (gang.minimum, severity) == (0, Severity.BLOCKING)
    assert words in message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"minResources": {"cpu": "lots"}}, "lots"),
        ({"priorityClassName": "nobody"}, 'priorityClassName of PodGroup "a/A" is "nobody"'),
    ],
)
def test_other_invalid_values_are_reported_and_not_used(spec: dict[str, Any], words: str) -> None:
    gang = gang_of({"minMember": 1, **spec})
    ((severity, message),) = problems_of(gang)
    assert (gang.resources, gang.priority, severity) == ((), None, Severity.WARNING)
    assert words in message


WORKERS = {
    "name": "worker",
    "subGroupSize": 4,
    "minSubGroups": 2,
    "labelSelector": {"matchLabels": {TASK: "worker"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]},
    "matchLabelKeys": ["volcano.sh/partition-id"],
    "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
}


def test_policies_for_subgroups() -> None:
    gang = gang_of({"minMember": 8, "subGroupPolicy": [WORKERS, {"name": "rest"}]})
    workers, rest = gang.subgroups
    assert (workers.name, workers.size, workers.minimum, workers.keys) == ("worker", 4, 2, ("volcano.sh/partition-id",))
    assert workers.labels.matches({TASK: "worker", "app": ""})
    assert not workers.labels.matches({TASK: "worker"})
    assert not workers.labels.matches({TASK: "master", "app": ""})
    assert workers.tree == "hypernodes"
    assert [each.level for each in workers.constraints if each.hard] == ["tier-1"]
    assert (rest.size, rest.minimum, rest.keys, rest.constraints) == (1, 0, (), ())
    assert rest.labels.matches({})
    assert not gang.evicted_whole
    assert gang.problems == ()
    assert not gang_of({"minMember": 1, "subGroupPolicy": None}).subgroups


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ("all", 'is "all", which is not a list of policies'),
        ([{"subGroupSize": 4}], 'given with policy "{"subGroupSize":4}", which needs a name'),
        ([{"name": "a#b"}], "which needs a name"),
        ([{"name": "a"}, {"name": "a"}], 'given with two policies of the name "a"'),
        ([{"name": "a"}] * 21, "a list of 21 policies, but it must have at most 20"),
        ([{"name": "a", "subGroupSize": 0}], 'policy "a", whose subGroupSize is "0", which is not a number from 1'),
        ([{"name": "a", "subGroupSize": "4"}], 'whose subGroupSize is "4"'),
        ([{"name": "a", "minSubGroups": 101}], 'whose minSubGroups is "101", which is not a number from 0 to 100'),
        ([{"name": "a", "matchLabelKeys": "b"}], 'whose matchLabelKeys are "b"'),
        ([{"name": "a", "matchLabelKeys": ["b"] * 9}], "which are not up to 8 label keys"),
        ([{"name": "a", "labelSelector": ["b"]}], 'whose labelSelector is "["b"]"'),
        ([{"name": "a", "labelSelector": {"matchLabels": {"b": 1}}}], "whose matchLabels are not labels"),
        (
            [{"name": "a", "labelSelector": {"matchLabels": {f"b{n}": "" for n in range(21)}}}],
            "more than 20 requirements",
        ),
        ([{"name": "a", "labelSelector": {"matchExpressions": [{"key": "b", "operator": "Is"}]}}], '"operator":"Is"'),
        ([{"name": "a", "labelSelector": {"matchExpressions": [{"key": "b", "operator": "In"}]}}], '"operator":"In"'),
        ([{"name": "a", "networkTopology": {"mode": "near"}}], 'whose networkTopology is of mode "near"'),
    ],
)
def test_invalid_policies_for_subgroups_block_and_are_quoted(policies: object, words: str) -> None:
    gang = gang_of({"minMember": 1, "subGroupPolicy": policies})
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.BLOCKING
    assert message.startswith('spec.subGroupPolicy of PodGroup "a/A" is ')
    assert words in message
    assert not gang.subgroups


NEAR = LevelConstraint("*", LevelPolicy.PACK)


@pytest.mark.parametrize(
    ("topology", "tree", "constraints"),
    [
        (None, "", ()),
        ({}, "", ()),
        ({"mode": "soft"}, "hypernodes", (NEAR,)),
        ({"mode": "soft", "highestTierAllowed": 1}, "hypernodes", (NEAR,)),
        ({"mode": "hard"}, "hypernodes", (NEAR,)),
        (
            {"mode": "hard", "highestTierAllowed": 2},
            "hypernodes",
            (LevelConstraint("tier-2", LevelPolicy.PACK, hard=True, optional=True), NEAR),
        ),
        ({"highestTierAllowed": 0}, "hypernodes", (LevelConstraint("tier-0", LevelPolicy.PACK, hard=True), NEAR)),
        (
            {"highestTierName": "rack"},
            "hypernodes by tier name",
            (LevelConstraint("rack", LevelPolicy.PACK, hard=True), NEAR),
        ),
    ],
)
def test_a_network_topology_packs_into_a_domain_of_the_tree_of_hyper_nodes(
    topology: Any, tree: str, constraints: tuple[LevelConstraint, ...]
) -> None:
    gang = gang_of({"minMember": 1, "networkTopology": topology})
    assert (gang.tree, gang.constraints, gang.problems) == (tree, constraints, ())


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ("hard", '"hard", which is not of the form'),
        ({"mode": "firm"}, 'of mode "firm", which is neither hard nor soft'),
        (
            {"highestTierAllowed": 1, "highestTierName": "rack"},
            'both highestTierAllowed "1" and highestTierName "rack"',
        ),
        ({"highestTierAllowed": -1}, 'highestTierAllowed "-1", which is not a number from 0'),
        ({"highestTierAllowed": "one"}, 'highestTierAllowed "one"'),
        ({"highestTierName": "a:b"}, 'highestTierName "a:b", which no level'),
        ({"highestTierName": 5}, 'highestTierName "5", which no level'),
    ],
)
def test_an_invalid_network_topology_blocks_and_is_quoted(topology: Any, words: str) -> None:
    gang = gang_of({"minMember": 1, "networkTopology": topology})
    ((severity, message),) = problems_of(gang)
    assert (gang.constraints, severity) == ((), Severity.BLOCKING)
    assert message.startswith('spec.networkTopology of PodGroup "a/A" is ')
    assert words in message


@pytest.mark.parametrize(
    ("minimum", "minima", "pods"),
    [
        (3, {"ps": 1, "worker": 2}, {}),  # no pod yet
        (3, {"ps": 1, "worker": 2}, {"worker": 2}),  # the gang gathers
        (3, {"ps": 1, "worker": 2}, {"ps": 1, "worker": 2}),  # all pods start
        (4, {"ps": 1, "worker": 2}, {"ps": 1, "worker": 3}),  # the minimum is above the sum
        (3, {"worker": 2}, {"worker": 9}),  # every pod has the task
        (8, {"ps": 1, "worker": 2}, {"ps": 3, "worker": 6}),  # 8 of 9 include 2 of the first and 5 of the second
        (3, {"ps": 0}, {"worker": 9}),
    ],
)
def test_minima_per_task_that_any_choice_of_pods_fulfils(
    minimum: int, minima: dict[str, int], pods: dict[str, int]
) -> None:
    assert gang_of({"minMember": minimum, "minTaskMember": minima}, of_tasks(**pods)).problems == ()


def test_a_minimum_below_the_sum_over_tasks_makes_those_of_tasks_ineffective() -> None:
    gang = gang_of({"minMember": 3, "minTaskMember": {"ps": 2, "worker": 2}}, of_tasks(worker=4))
    assert problems_of(gang) == [
        (
            Severity.WARNING,
            'spec.minTaskMember of PodGroup "a/A" adds up to 4, above spec.minMember, 3: as in Volcano, it has no '
            "effect; set minMember to at least 4 if each task needs its pods",
        )
    ]


def test_a_task_with_too_few_pods_blocks_the_gang() -> None:
    gang = gang_of({"minMember": 3, "minTaskMember": {"ps": 2, "worker": 1}}, of_tasks(ps=1, worker=2))
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.BLOCKING
    assert message.startswith('spec.minTaskMember of PodGroup "a/A" is 2 for task "ps", of which 1 pods exist: create')


def labelled(**pods: int) -> list[MarkSet]:
    """Mark sets of this many pods of each task, as Volcano's controllers mark them."""
    found = []
    for task, number in pods.items():
        each = marked(f"{task}-0", annotations={NAME: "A", TASK: task}, labels={TASK: task})
        found.append(replace(each, pods=number))
    return found


def task_policy(task: str, size: int) -> SubgroupPolicy:
    labels = EVERYTHING_SELECTED.narrowed([Requirement(TASK, Operator.IN, (task,))])
    return SubgroupPolicy(f"task {task}", labels, size=size, minimum=1)


def test_tasks_of_a_gang_with_surplus_pods_are_subgroups() -> None:
    spec = {"minMember": 4, "minTaskMember": {"ps": 1, "worker": 2, "logger": 0}}
    gang = gang_of(spec, labelled(ps=1, worker=3, logger=1))
    assert gang.problems == ()
    assert gang.subgroups == (task_policy("ps", 1), task_policy("worker", 2))


def test_a_task_that_is_only_an_annotation_blocks_a_gang_with_surplus_pods() -> None:
    gang = gang_of({"minMember": 3, "minTaskMember": {"ps": 1, "worker": 2}}, of_tasks(ps=1, worker=3))
    assert problems_of(gang) == [
        (
            Severity.BLOCKING,
            'spec.minTaskMember of PodGroup "a/A" is given for task "ps", but the label volcano.sh/task-spec of pod '
            '"ps-0" is "": a gang with more pods than spec.minMember needs the task as a label too',
        )
    ]


def partitions(minimum: int, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    partition = {"matchLabelKeys": ["volcano.sh/partition-id"], "subGroupSize": 3}
    return [{"name": "worker", "labelSelector": {"matchLabels": labels}, "minSubGroups": minimum, **partition}]


def test_partitions_of_a_task_are_its_subgroups() -> None:
    spec = {"minMember": 4, "minTaskMember": {"ps": 1, "worker": 3}, "subGroupPolicy": partitions(1, {TASK: "worker"})}
    gang = gang_of(spec, labelled(ps=1, worker=6))
    assert gang.problems == ()
    assert [(each.name, each.size, each.minimum) for each in gang.subgroups] == [("worker", 3, 1), ("task ps", 1, 1)]


@pytest.mark.parametrize(("minimum", "labels", "start"), [(0, {TASK: "worker"}, 0), (2, {"a": "b"}, 0)])
def test_other_subgroups_of_a_task_with_a_minimum_block_the_gang(
    minimum: int, labels: Mapping[str, str], start: int
) -> None:
    spec = {"minMember": 4, "minTaskMember": {"worker": 3}, "subGroupPolicy": partitions(minimum, labels)}
    ((severity, message),) = problems_of(gang_of(spec, labelled(ps=2, worker=6)))
    assert severity is Severity.BLOCKING
    assert (
        f'is 3 for task "worker", but policy "worker" of spec.subGroupPolicy divides its pods, and makes {start} of'
        in (message)
    )


GENERATED = "podgroup-4f5210d9-3cba-4a59-b61c-1b243f464708"


@pytest.mark.parametrize(
    ("annotations", "labels", "gang_id"),
    [
        ({}, {}, f"kube-batch/a/{GENERATED}"),
        ({}, {"pod-group.scheduling.sigs.k8s.io": "c"}, "koordinator/a/c"),
        ({"scheduling.k8s.io/group-pod-num": "2"}, {}, f"batch/a/{GENERATED}"),
        ({"kueue.x-k8s.io/pod-group-total-count": "2"}, {"kueue.x-k8s.io/pod-group-name": "k"}, "kueue/a/k"),
    ],
)
def test_a_generated_pod_group_counts_only_without_another_gang(
    annotations: Mapping[str, str], labels: Mapping[str, str], gang_id: str
) -> None:
    pod = marked(annotations={NAME: GENERATED, **annotations}, labels=labels)
    membership = membership_of(pod.marks)
    assert membership is not None
    assert membership.gang_id == gang_id
    assert not [message for _, message in problems_of(read_gang(gang_id, None, [pod])) if "also has marks" in message]


def test_a_native_group_counts_before_a_generated_one() -> None:
    marks = gang_marks("a", None, {NAME: GENERATED}, pod_group="n")
    membership = membership_of(marks)
    assert membership is not None
    assert membership.gang_id == "native/a/n"


@pytest.mark.parametrize(("minimum", "independent"), [(1, True), (4, False)])
def test_pods_of_a_generated_pod_group_without_a_minimum_start_singly(minimum: int, independent: bool) -> None:
    spec = {"minMember": minimum, "minResources": {"cpu": "4"}}
    definition = pod_group(volcano.DEFINITION, spec, name=GENERATED)
    gang = read_gang(f"kube-batch/a/{GENERATED}", definition, [marked(annotations={NAME: GENERATED})])
    assert (gang.minimum, gang.independent, gang.problems) == (minimum, independent, ())
    assert gang.resources == (() if independent else (("cpu", 4000),))


@pytest.mark.parametrize(
    ("minima", "words"),
    [
        ([3], '"[3]", which is not a map of tasks'),
        ({"ps": "two"}, '"two" for task "ps", which is not a number of pods'),
        ({"ps": -1}, '"-1" for task "ps"'),
        ({"ps": True}, '"true" for task "ps"'),
        ({f"task-{number}": 1 for number in range(101)}, "a map of 101 tasks, but it must have at most 100"),
    ],
)
def test_invalid_minima_per_task_block_and_are_quoted(minima: Any, words: str) -> None:
    ((severity, message),) = problems_of(gang_of({"minMember": 1, "minTaskMember": minima}))
    assert severity is Severity.BLOCKING
    assert words in message


def test_pods_are_counted_only_for_minima_per_task() -> None:
    assert counts_pods(group({"minTaskMember": {"ps": 1}}))
    assert not counts_pods(group({"minMember": 1}))
    assert not counts_pods(pod_group(kube_batch.DEFINITION, {"minTaskMember": {"ps": 1}}))


def test_the_task_is_an_annotation_or_a_label() -> None:
    pods = [
        replace(marked("ps-0", annotations={NAME: "A"}, labels={TASK: "ps"}), pods=1),
        replace(marked("w-0", annotations={NAME: "A", TASK: "worker"}, labels={TASK: "ps"}), pods=2),
    ]
    assert gang_of({"minMember": 3, "minTaskMember": {"ps": 1, "worker": 2}}, pods).problems == ()


def test_a_task_alone_declares_nothing() -> None:
    assert membership_of(marked(annotations={TASK: "worker"}, labels={TASK: "worker"}).marks) is None
    counted = {NAME: "A", "scheduling.k8s.io/group-pod-num": "1", TASK: "worker"}
    assert read_gang("batch/a/A", None, [marked(annotations=counted)]).problems == ()


@pytest.mark.parametrize(
    ("index", "rank"), [("0", 0), ("12", 12), ("", -1), ("-1", -1), ("x", -1), ("1" * 10, -1), ("٣", -1)]
)
def test_the_task_index_is_the_wanted_rank(index: str, rank: int) -> None:
    assert wanted_rank(ID, {INDEX: index}) == rank
    assert wanted_rank(ID, {}) == -1
    assert wanted_rank("coscheduling/a/A", {INDEX: index}) == -1
