"""Kubernetes' own PodGroups: declarations in each version of their API, and conditions written to them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.gangs.declarations import pod_group, problems_of
from muster.dialects import native
from muster.dialects.definitions import Definition
from muster.dialects.marks import GangMarks, MarkSet, PodAge
from muster.dialects.progress import MemberProgress, ObjectCondition, Progress, Stage, WriteRule
from muster.dialects.registry import gang_marks, membership_of, progress_writes, read_gang, writes_progress
from muster.gangs.facts import GangFacts, LevelConstraint, LevelPolicy, ObjectReference, Severity

GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}
RACK = "example.com/rack"


def group(**spec: Any) -> Definition:
    """PodGroup a/A."""
    return pod_group(native.DEFINITION, spec)


def gang_of(definition: Definition | None, priorities: dict[str, int] | None = None) -> GangFacts:
    pods = [MarkSet(gang_marks("a", {}, {}, "A"), PodAge(100, "w-0", "uid-of-w-0"))]
    return read_gang("native/a/A", definition, pods, priorities or {})


class TestMembership:
    def test_the_scheduling_group_names_the_gang(self) -> None:
        membership = membership_of(gang_marks("a", {}, {}, "A"))
        assert membership is not None and membership.gang_id == "native/a/A"

    def test_marks_of_other_dialects_take_precedence_with_a_warning(self) -> None:
        marks = gang_marks("a", {"scheduling.x-k8s.io/pod-group": "C"}, {}, "A")
        membership = membership_of(marks)
        assert membership is not None and membership.gang_id == "coscheduling/a/C"
        gang = read_gang("coscheduling/a/C", None, [MarkSet(marks, PodAge(1, "w-0", "u"))])
        assert any("dialect native (spec.schedulingGroup)" in message for _, message in problems_of(gang))

    def test_a_name_that_no_object_can_have_is_the_pods_problem(self) -> None:
        membership = membership_of(GangMarks("a", pod_group="A/B"))
        assert membership is not None
        assert membership.problem.startswith('spec.schedulingGroup.podGroupName is "A/B"')


class TestPolicy:
    def test_a_gang(self) -> None:
        assert gang_of(group(**GANG)) == GangFacts(
            id="native/a/A",
            dialect="native",
            namespace="a",
            name="A",
            incarnation="uid-of-A",
            minimum=4,
            total=4,
            created_seconds=50,
            definition=ObjectReference("scheduling.k8s.io/v1beta1", "PodGroup", "a", "A", "uid-of-A"),
            terms=("schedulingPolicy.gang.minCount: 4 (PodGroup a/A)",),
        )

    def test_pods_of_a_basic_group_start_one_by_one(self) -> None:
        gang = gang_of(group(schedulingPolicy={"basic": {}}))
        assert (gang.minimum, gang.total, gang.problems) == (1, 1, ())

    def test_without_its_pod_group_it_waits(self) -> None:
        ((severity, message),) = problems_of(gang_of(None))
        assert severity is Severity.BLOCKING
        assert message.startswith('PodGroup "a/A" (scheduling.k8s.io) does not exist yet: create it')

    @pytest.mark.parametrize(
        ("policy", "words"),
        [
            (None, 'spec.schedulingPolicy of PodGroup "a/A" is "null", but it must have one of gang and basic'),
            ({}, "one of gang and basic"),
            ({"gang": {"minCount": 2}, "basic": {}}, "one of gang and basic"),
            ([], "one of gang and basic"),
            ({"gang": {}}, 'spec.schedulingPolicy.gang.minCount of PodGroup "a/A" is missing'),
            ({"gang": {"minCount": 0}}, '"0", but it must be at least 1'),
            ({"gang": {"minCount": "five"}}, '"five", which is not a whole number'),
            ({"gang": 7}, "minCount"),
        ],
    )
    def test_an_invalid_policy_blocks_the_gang(self, policy: Any, words: str) -> None:
        gang = gang_of(group(schedulingPolicy=policy))
        assert gang.blocked
        assert words in problems_of(gang)[0][1]

    def test_an_unknown_policy_beside_a_known_one_is_quoted(self) -> None:
        gang = gang_of(group(schedulingPolicy={"gang": {"minCount": 4}, "elastic": {"maxCount": 8}}))
        ((severity, message),) = problems_of(gang)
        assert (severity, gang.minimum) == (Severity.WARNING, 4)
        assert message.startswith('spec.schedulingPolicy of PodGroup "a/A" has "elastic"')
        assert "of which only gang is known and used" in message

    def test_a_group_of_a_hierarchy_waits(self) -> None:
        gang = gang_of(group(**GANG, parentCompositePodGroupName=["root"]))
        ((severity, message),) = problems_of(gang)
        assert severity is Severity.BLOCKING
        assert 'is "["root"]", but that is no name of a CompositePodGroup' in message


class TestTopology:
    def test_a_key_packs_it_hard_in_a_tree_of_that_label(self) -> None:
        gang = gang_of(group(**GANG, schedulingConstraints={"topology": [{"key": RACK}]}))
        assert gang.tree == f"label {RACK}"
        assert gang.constraints == (LevelConstraint(RACK, LevelPolicy.PACK, hard=True),)
        assert gang.problems == ()

    @pytest.mark.parametrize("constraints", [None, {}, {"topology": []}, {"topology": None}])
    def test_without_a_constraint_it_may_go_anywhere(self, constraints: Any) -> None:
        gang = gang_of(group(**GANG, schedulingConstraints=constraints))
        assert (gang.tree, gang.constraints, gang.problems) == ("", (), ())

    @pytest.mark.parametrize(
        "topology",
        [
            *([{"key": RACK}, {"key": "zone"}], [{}], [{"key": 7}], ["rack"], "rack", [{"key": ""}]),
            *([{"key": "a b"}], [{"key": "/rack"}], [{"key": "x" * 400}], [{"key": "Example/rack"}]),
        ],
    )
    def test_an_invalid_key_blocks_the_gang(self, topology: Any) -> None:
        gang = gang_of(group(**GANG, schedulingConstraints={"topology": topology}))
        ((severity, message),) = problems_of(gang)
        assert severity is Severity.BLOCKING
        assert message.startswith('spec.schedulingConstraints.topology of PodGroup "a/A" is ')
        assert (gang.tree, gang.constraints) == ("", ())

    def test_musters_topology_annotation_replaces_the_key(self) -> None:
        definition = group(**GANG, schedulingConstraints={"topology": [{"key": RACK}]})
        own = pod_group(native.DEFINITION, definition.spec, {"muster.dev/topology": "rack: spread"})
        gang = gang_of(own)
        assert (gang.tree, gang.constraints) == ("", (LevelConstraint("rack", LevelPolicy.SPREAD),))
        assert "muster.dev/topology" in problems_of(gang)[0][1]


class TestPriorityAndDisruption:
    @pytest.mark.parametrize(
        ("spec", "priority"),
        [
            ({}, None),
            ({"priority": 7, "priorityClassName": "high"}, 7),
            ({"priority": 0, "priorityClassName": "high"}, 0),
            ({"priority": 0}, None),
            ({"priority": 0, "priorityClassName": ""}, None),
            ({"priority": -5}, -5),
            ({"priorityClassName": "high"}, 1000),
            ({"priorityClassName": ""}, None),
        ],
    )
    def test_the_priority_takes_precedence_over_the_class(self, spec: dict[str, Any], priority: int | None) -> None:
        gang = gang_of(group(**GANG, **spec), {"high": 1000})
        assert (gang.priority, gang.problems) == (priority, ())

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ({"priorityClassName": "higher"}, '"higher", but no PriorityClass has that name'),
            ({"priorityClassName": ["high"]}, "no PriorityClass has that name"),
            ({"priority": "7"}, '"7", which is not a whole number'),
            ({"priority": True}, '"true", which is not a whole number'),
            ({"priority": 2**31}, "at most 2147483647"),
        ],
    )
    def test_an_invalid_priority_leaves_that_of_the_pods(self, spec: dict[str, Any], words: str) -> None:
        gang = gang_of(group(**GANG, **spec), {"high": 1000})
        ((severity, message),) = problems_of(gang)
        assert (severity, gang.priority) == (Severity.WARNING, None)
        assert words in message

    @pytest.mark.parametrize(
        ("mode", "whole"),
        [
            *((None, False), ("Pod", False), ({"single": {}}, False)),
            *(("PodGroup", True), ({"all": {}}, True)),
        ],
    )
    def test_the_disruption_mode_of_all_versions(self, mode: Any, whole: bool) -> None:
        gang = gang_of(group(**GANG, disruptionMode=mode))
        assert (gang.evicted_whole, gang.problems) == (whole, ())

    @pytest.mark.parametrize("mode", ["Pods", {}, {"single": {}, "all": {}}, 7, [1]])
    def test_an_unknown_disruption_mode_is_the_careful_one(self, mode: Any) -> None:
        gang = gang_of(group(**GANG, disruptionMode=mode))
        assert gang.evicted_whole
        assert [severity for severity, _ in problems_of(gang)] == [Severity.WARNING]

    def test_it_may_never_preempt(self) -> None:
        assert gang_of(group(**GANG, preemptionPolicy="Never")).never_preempts
        assert not gang_of(group(**GANG, preemptionPolicy="PreemptLowerPriority")).never_preempts
        gang = gang_of(group(**GANG, preemptionPolicy="Sometimes"))
        assert [severity for severity, _ in problems_of(gang)] == [Severity.WARNING]


def conditions(stage: Stage, version: str = "v1beta1", **more: Any) -> list[ObjectCondition]:
    reference = ObjectReference(f"scheduling.k8s.io/{version}", "PodGroup", "a", "A", "uid-of-A")
    definition = Definition(reference.api_version, "PodGroup", "a", "A", "uid-of-A", 50, spec=GANG)
    facts = gang_of(definition)
    assert facts.definition == reference
    writes = progress_writes(Progress(facts, stage, **more))
    assert writes.pods == ()
    (write,) = writes.objects
    assert (write.object, write.plural, write.subresource, write.patch) == (reference, "podgroups", "status", {})
    return list(write.conditions)


class TestConditions:
    def test_it_tells(self) -> None:
        assert writes_progress("native/a/A")
        assert progress_writes(Progress(gang_of(None), Stage.GATHERING, reason="x")).objects == ()

    @pytest.mark.parametrize(
        ("version", "name"),
        [
            ("v1alpha2", "PodGroupScheduled"),
            ("v1alpha3", "PodGroupInitiallyScheduled"),
            ("v1beta1", "PodGroupInitiallyScheduled"),
        ],
    )
    def test_all_bound_is_scheduled_in_the_words_of_the_version(self, version: str, name: str) -> None:
        assert conditions(Stage.BOUND, version)[0] == ObjectCondition(name, "True", "Scheduled")

    def test_a_gang_that_ended_was_scheduled_if_its_pods_are_there(self) -> None:
        facts, ran = gang_of(group(**GANG)), (MemberProgress("u", "a-0", "node-0", bound=True),)
        [ended] = progress_writes(Progress(facts, Stage.ENDED, ran)).objects
        assert ended.conditions[0] == ObjectCondition("PodGroupInitiallyScheduled", "True", "Scheduled")
        assert [each.type for each in conditions(Stage.ENDED)] == ["DisruptionTarget"], "what was written remains"

    @pytest.mark.parametrize("stage", [Stage.GATHERING, Stage.READY])
    def test_a_wait_is_reported_unless_the_gang_was_scheduled_once(self, stage: Stage) -> None:
        reported = conditions(stage, reason="3 of 4 members")[0]
        assert reported == ObjectCondition(
            "PodGroupInitiallyScheduled", "False", "Unschedulable", "3 of 4 members", WriteRule.UNLESS_TRUE
        )

    def test_conditions_stay_while_the_gang_is_being_bound(self) -> None:
        assert [each.type for each in conditions(Stage.READY)] == ["DisruptionTarget"]
        facts = gang_of(group(**GANG))
        for stage in (Stage.ASSIGNED, Stage.PERMITTED):
            assert progress_writes(Progress(facts, stage)).objects == ()

    def test_preemption_is_a_disruption_and_ends(self) -> None:
        assert conditions(Stage.PREEMPTED, preemptor="native/b/B") == [
            ObjectCondition("DisruptionTarget", "True", "PreemptionByScheduler", "preempted by gang b/B")
        ]
        over = conditions(Stage.READY)[0]
        assert (over.type, over.status, over.write_rule) == ("DisruptionTarget", "False", WriteRule.IF_PRESENT)

    def test_a_long_reason_is_cut(self) -> None:
        assert len(conditions(Stage.READY, reason="x" * 5000)[0].message) == 1024


FIELDS = st.sampled_from(
    [
        *("schedulingPolicy", "gang", "basic", "minCount", "schedulingConstraints", "topology", "key", "single", "all"),
        *("disruptionMode", "priority", "priorityClassName", "preemptionPolicy", "parentCompositePodGroupName", "x"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | st.just("a.b/c"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(FIELDS, VALUES, max_size=8))
def test_any_pod_group_is_a_gang_or_has_a_problem(spec: dict[str, Any]) -> None:
    gang = gang_of(group(**spec))
    assert gang.blocked or gang.minimum >= 1
    assert bool(gang.tree) == bool(gang.constraints)
    assert all(problem.message and len(problem.message) < 1000 for problem in gang.problems)
    assert all(len(term) < 500 for term in gang.terms)
    progress_writes(Progress(gang, Stage.READY, reason="r"))
