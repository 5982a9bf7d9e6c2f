"""Sakkara's groups: ConfigMap, labels, their precedence, and messages about malformed values."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.gangs.declarations import marked, problems_of
from builders.gangs.sakkara import LABEL, config_map, group, member
from muster.dialects.marks import MarkSet
from muster.dialects.registry import defined_gang, gang_marks, membership_of, read_gang
from muster.gangs.facts import (
    OTHER_LEVELS,
    GangFacts,
    GangMode,
    LevelConstraint,
    LevelPolicy,
    ObjectReference,
    Severity,
)
from muster.kube.api_resources import DEFINITIONS, TOPOLOGIES, definitions
from muster.kube.gang_marks import definition
from muster.kube.objects import decode_pod_group

BLOCKING, WARNING = Severity.BLOCKING, Severity.WARNING
PACK_OTHERS = LevelConstraint(OTHER_LEVELS, LevelPolicy.PACK)


def only_problem(gang: GangFacts) -> tuple[Severity, str]:
    (problem,) = problems_of(gang)
    return problem


# -- who is a member


def test_the_label_names_the_group() -> None:
    membership = membership_of(gang_marks("a", {LABEL + "name": "train"}, None))
    assert membership is not None
    assert membership.gang_id == "sakkara/a/train"


def test_labels_without_the_groups_name_are_the_pods_problem() -> None:
    membership = membership_of(gang_marks("a", {LABEL + "constraint.type.rack": "pack"}, None))
    assert membership is not None
    assert membership.gang_id == ""
    assert "sakkara.group.constraint.type.rack without the gang's name: add it (label sakkara.group.name)" in (
        membership.problem
    )


def test_labels_written_on_pods_are_not_marks() -> None:
    reported = {"sakkara.member.rank": "3", "sakkara.member.status": "Bound", "sakkara.member.retries": "1"}
    labels = {LABEL + "name": "A", LABEL + "constraint.min.node": "2"}
    assert gang_marks("a", labels, None) == gang_marks("a", {**labels, **reported}, None)


@pytest.mark.parametrize(
    ("data", "gang_id"),
    [
        ({"name": "train"}, "sakkara/a/train"),
        ({"name": " train\n"}, "sakkara/a/train"),
        ({}, "sakkara/a/A"),
        ({"name": ""}, "sakkara/a/A"),
        ({"name": "not/a/name"}, "sakkara/a/A"),
    ],
)
def test_a_config_map_defines_the_group_that_it_names_or_else_its_own(data: dict[str, str], gang_id: str) -> None:
    assert defined_gang(config_map(data)) == gang_id


def test_an_invalid_name_is_reported() -> None:
    assert only_problem(group(member(), name="not/a/name", size="1")) == (
        WARNING,
        'name of ConfigMap "a/A" is "not/a/name", but a gang\'s name has at most 253 letters, digits, dashes, '
        "underscores and dots, and begins and ends with a letter or digit: the name of the ConfigMap, "
        '"A", is used instead',
    )


# -- what is declared, by whom


def test_a_config_map_alone_declares_a_group() -> None:
    gang = group(member(), name="A", size="8", priority="5", constraints={"rack": {"type": "pack"}})
    assert (gang.minimum, gang.total, gang.mode, gang.priority) == (8, 8, GangMode.STRICT, 5)
    assert gang.constraints == (LevelConstraint("rack", LevelPolicy.PACK), PACK_OTHERS)
    assert gang.uniform
    assert gang.evicted_whole
    assert not gang.never_preempts
    assert gang.definition == ObjectReference("v1", "ConfigMap", "a", "A", "uid-of-A")
    assert gang.problems == ()
    assert gang.terms == (
        "size: 8 (ConfigMap a/A)",
        "priority: 5 (ConfigMap a/A)",
        'constraints: {"rack": {"type": "pack"}} (ConfigMap a/A)',
    )


def test_labels_alone_declare_the_same_group() -> None:
    labels = {"size": "8", "priority": "5", "constraint__type__rack": "pack"}
    by_labels, by_config_map = (
        group(member(**labels)),
        group(member(), size="8", priority="5", constraints={"rack": {"type": "pack"}}),
    )
    for fact in ("minimum", "total", "priority", "constraints", "uniform", "never_preempts", "problems"):
        assert getattr(by_labels, fact) == getattr(by_config_map, fact)
    assert by_labels.definition is None
    assert by_labels.terms == (
        "sakkara.group.size: 8 (pod w-0)",
        "sakkara.group.priority: 5 (pod w-0)",
        "sakkara.group.constraint.type.rack: pack (pod w-0)",
    )


def test_missing_keys_have_sakkaras_defaults() -> None:
    gang = group(member(), name="A")
    assert (gang.minimum, gang.total, gang.priority, gang.constraints) == (1, 1, 0, (PACK_OTHERS,))
    assert gang.never_preempts
    assert not gang.problems
    assert not gang.terms


def test_without_config_map_and_size_the_pods_wait() -> None:
    gang = group(member(constraint__type__rack="pack"))
    assert gang.minimum == 0
    assert only_problem(gang) == (
        BLOCKING,
        'there is no ConfigMap with the label sakkara.group for group "a/A" yet, and its pods have no label '
        "sakkara.group.size: create the one, or set the other to the number of the group's pods",
    )


def test_the_config_map_takes_precedence_over_labels_with_a_warning() -> None:
    gang = group(member(size="3", priority="7", constraint__type__node="spread"), size="8", priority="5")
    assert (gang.minimum, gang.priority) == (8, 5)
    assert gang.constraints == (LevelConstraint("node", LevelPolicy.SPREAD), PACK_OTHERS)
    assert problems_of(gang) == [
        (
            WARNING,
            'label sakkara.group.size of pod "w-0" is "3", but size of ConfigMap "a/A" is "8", which is used',
        ),
        (
            WARNING,
            'label sakkara.group.priority of pod "w-0" is "7", but priority of ConfigMap "a/A" is "5", which is used',
        ),
    ]
    assert gang.terms == (
        "size: 8 (ConfigMap a/A)",
        "priority: 5 (ConfigMap a/A)",
        "sakkara.group.constraint.type.node: spread (pod w-0)",
    )


def test_the_oldest_pod_decides_for_each_label() -> None:
    gang = group(member("w-1", 200, size="4"), member("w-0", 100, size="3"))
    assert gang.minimum == 3
    assert only_problem(gang)[1].startswith('label sakkara.group.size of pod "w-1" is "4", but "3" is used')


@pytest.mark.parametrize(("priority", "never"), [("1", False), ("0", True), ("-5", True), ("+3", False)])
def test_only_priorities_above_zero_preempt(priority: str, never: bool) -> None:
    gang = group(member(), size="1", priority=priority)
    assert (gang.priority, gang.never_preempts) == (int(priority), never)


def test_priority_classes_have_no_effect() -> None:
    gang = read_gang("sakkara/a/A", config_map({"size": "1"}), [member()], {"high": 1000})
    assert gang.priority == 0


# -- what is malformed


@pytest.mark.parametrize("size", ["five", "0", "-1", "1.5", "99999999999", "x" * 100_000])
def test_an_invalid_size_blocks_the_group(size: str) -> None:
    gang = group(member(), size=size)
    severity, message = only_problem(gang)
    assert severity is BLOCKING
    assert message.startswith('size of ConfigMap "a/A" is "')
    assert message.endswith(": set it to the number of the group's pods")
    assert len(message) < 300
    assert gang.minimum == 0


@pytest.mark.parametrize("priority", ["high", "1.5", "2147483648", "９"])
def test_an_invalid_priority_counts_as_zero(priority: str) -> None:
    gang = group(member(), size="1", priority=priority)
    assert (gang.priority, gang.never_preempts) == (0, True)
    assert only_problem(gang) == (
        WARNING,
        f'priority of ConfigMap "a/A" is "{priority}", which is not a whole number from -2147483648 to 2147483647: '
        "0 is used instead",
    )


@pytest.mark.parametrize(
    ("constraints", "saying"),
    [
        ("{", "is not JSON, Expecting property name"),
        ("[]", 'is "[]", which is not a JSON object such as'),
        ("9" * 5000, "which cannot be read"),
        ("[" * 15000, "which cannot be read"),
        (" " + "{}" * 9000, "16384 are allowed"),
        ({"rack": "pack"}, 'is "pack" for level "rack", but it must be an object'),
        ({"ra:ck": {}}, 'is about a level "ra:ck", which no tree can have'),
        ({f"l{n}": {} for n in range(17)}, "is about 17 levels, but a tree has at most 16"),
        ('{"rack": {}, "rack": {}}', 'is JSON with "rack" twice in one object'),
        ({"rack": {"type": "bunch"}}, 'is wrong: type of level "rack" is "bunch", which is neither pack nor spread'),
        ({"rack": {"hard": 1}}, 'is wrong: hard of level "rack" is "1", which is neither true nor false'),
        ({"rack": {"partitions": "x"}}, 'is wrong: partitions of level "rack" is "x", which is not a whole number'),
        ({"rack": {"max": 0}}, 'is wrong: max of level "rack" is "0", but it must be at least 1'),
        ({"rack": {"factor": [2]}}, 'is wrong: factor of level "rack" is "[2]", which is not a whole number'),
    ],
)
def test_constraints_that_cannot_be_read_make_the_group_wait(constraints: Any, saying: str) -> None:
    gang = group(member(), size="8", constraints=constraints)
    severity, message = only_problem(gang)
    assert severity is BLOCKING
    assert message.startswith('constraints of ConfigMap "a/A" is ')
    assert saying in message
    assert message.endswith(": correct it, and the group can start")
    assert len(message) < 400
    assert gang.constraints == (PACK_OTHERS,)


@pytest.mark.parametrize(
    ("asked", "saying"),
    [
        ({"type": "pack", "partitions": 2}, 'constraints "rack: pack" and "rack: partition(2)" contradict each other'),
        ({"min": 4, "max": 2}, '"rack: range(4,2)" begins above its end'),
        ({"min": 3, "max": 4, "factor": 5}, "no multiple of 5 is from 3 to 4"),
    ],
)
def test_contradictory_constraints_are_reported_on_the_config_map(asked: dict[str, Any], saying: str) -> None:
    severity, message = only_problem(group(member(), size="8", constraints={"rack": asked}))
    assert severity is BLOCKING
    assert message.startswith('constraints of ConfigMap "a/A": ')
    assert saying in message


def test_unknown_constraint_keys_are_reported_and_ignored() -> None:
    gang = group(member(), size="8", constraints={"rack": {"type": "pack", "partition": 2}})
    assert only_problem(gang) == (
        WARNING,
        'constraints of ConfigMap "a/A": "partition" of level "rack" is unknown and ignored',
    )
    gang = group(member(size="8", constraint__hardness__rack="9"))
    assert only_problem(gang) == (
        WARNING,
        'the set of labels sakkara.group.constraint.* of the pods: "hardness" of level "rack" is unknown and ignored',
    )


def test_a_constraint_label_without_a_level_is_reported() -> None:
    severity, message = only_problem(group(member(size="8", constraint__type="pack")))
    assert severity is BLOCKING
    assert 'is about a level "", which no tree can have' in message


# -- with Muster's own annotations, and with other definitions


def test_musters_topology_annotation_replaces_constraints_with_a_warning() -> None:
    pods = [marked("w-0", labels={LABEL + "name": "A"}, annotations={"muster.dev/topology": "rack: hard spread"})]
    own = LevelConstraint("rack", LevelPolicy.SPREAD, hard=True)
    gang = group(*pods, size="8")
    assert gang.constraints == (own,)
    assert gang.problems == ()
    gang = group(*pods, size="8", constraints={"rack": {"type": "pack"}})
    assert gang.constraints == (own,)
    assert only_problem(gang) == (
        WARNING,
        "annotation muster.dev/topology replaces the topology constraints of the dialect sakkara",
    )


def test_constraint_labels_on_pods_of_another_dialect_are_reported() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "c", LABEL + "constraint.type.rack": "pack"}
    pods = [marked("w-0", labels=labels)]
    problems = problems_of(read_gang("coscheduling/a/c", None, pods))
    assert (
        WARNING,
        'pod "w-0" also has marks of the dialect sakkara (sakkara.group.constraint.type.rack); only those of '
        "coscheduling are used",
    ) in problems


def test_of_two_config_maps_of_one_group_the_older_is_used() -> None:
    older, newer = config_map({"name": "A", "size": "2"}, "one"), config_map({"name": "A", "size": "3"}, "two")
    gang = read_gang("sakkara/a/A", older, [member()], rivals=[newer])
    assert gang.minimum == 2
    assert only_problem(gang) == (
        WARNING,
        'ConfigMap "a/two" defines this gang too; ConfigMap "one" is older and is used instead',
    )
    assert gang.terms == ("size: 2 (ConfigMap a/one)",)


# -- off the wire


def test_only_declared_keys_of_a_config_map_are_kept() -> None:
    [kind] = [kind for kind in DEFINITIONS.values() if kind.kind == "ConfigMap"]
    written = decode_pod_group(
        b'{"metadata":{"name":"A","namespace":"a","uid":"uid-of-A","creationTimestamp":"1970-01-01T00:00:50Z",'
        b'"labels":{"sakkara.group":""}},"data":{"name":"A","size":"8","status":"Bound","placement":"{}","rank":"[]"}}'
    )
    assert definition(written, kind) == config_map({"name": "A", "size": "8"})
    assert read_gang("sakkara/a/A", definition(written, kind), []).minimum == 8


def test_groups_and_trees_are_watched_apart() -> None:
    [kind] = [kind for kind in DEFINITIONS.values() if kind.kind == "ConfigMap"]
    resource = definitions(kind)
    assert resource.path == "/api/v1/configmaps"
    assert resource.label_selector == "sakkara.group"
    assert resource.kind != TOPOLOGIES
    assert resource.dispensable, "who may not read all ConfigMaps can still use all other dialects"


# -- whatever was declared

texts = st.sampled_from(["A", "3", "0", "-1", "", "five", "pack", "spread", "true", "{}", "[", "x" * 300, "é", "\n"])
levels = st.sampled_from(["rack", "node", "", "a:b", "l" * 70])
values = texts | st.integers() | st.floats() | st.booleans() | st.none() | st.lists(st.integers(), max_size=2)
wishes = st.dictionaries(
    st.sampled_from(["type", "hard", "partitions", "min", "max", "factor", "x"]), values, max_size=4
)
data = st.fixed_dictionaries(
    {},
    optional={
        "name": texts,
        "size": texts | st.integers(),
        "priority": texts | st.integers(),
        "constraints": texts | st.dictionaries(levels, wishes | values, max_size=3),
    },
)
endings = st.sampled_from(
    ["size", "priority", "constraint.type.rack", "constraint.max.node", "constraint.", "constraint.x"]
)
pods_of_group = st.builds(
    lambda index, created, labels: marked(
        f"w-{index}",
        labels={LABEL + "name": "A", **{LABEL + key: text for key, text in labels.items()}},
        created_seconds=created,
    ),
    st.integers(0, 9),
    st.integers(0, 3),
    st.dictionaries(endings, texts, max_size=4),
)


@given(
    declared=st.none() | data,
    pods=st.lists(pods_of_group, max_size=4, unique_by=lambda each: each.oldest.name),
    seed=st.integers(0, 1000),
)
def test_facts_of_any_declaration_are_sound_in_any_order(
    declared: dict[str, Any] | None, pods: list[MarkSet], seed: int
) -> None:
    defined = None if declared is None else config_map(declared)
    gang = read_gang("sakkara/a/A", defined, pods)
    assert read_gang("sakkara/a/A", defined, random.Random(seed).sample(pods, len(pods))) == gang
    assert gang.blocked or 1 <= gang.minimum == gang.total
    assert gang.constraints[-1] == PACK_OTHERS
    assert gang.priority is not None
    assert gang.never_preempts == (gang.priority <= 0)
    assert all(0 < len(problem.message) < 600 for problem in gang.problems)
    assert len(set(gang.problems)) == len(gang.problems)
    assert all(0 < len(term) < 700 for term in gang.terms)
