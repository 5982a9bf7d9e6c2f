"""Objects become facts; batches contain the changes of facts and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from builders.clusterstate.history import (
    X_POD_GROUPS,
    History,
    node_object,
    pod_group_object,
    pod_object,
    priority_class_object,
    settle,
)
from muster.gangs.facts import Batch, GangFacts, NodeFacts, PodFacts, PodPhase, RepairPolicy, Severity
from muster.kube.api_resources import NODES, PODS
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import ObjectMeta, Pod

MIN = "gang.scheduling.koordinator.sh/min-available"
NAME = "gang.scheduling.koordinator.sh/name"
TIMED_OUT = {"gang.scheduling.koordinator.sh/timeout": "true"}
DURATION = "muster.dev/expected-duration"


NODE_CHANGES: dict[str, Callable[[], Any]] = {
    "uid": lambda: node_object("n", uid="another"),
    "allocatable": lambda: node_object("n", cpu="9"),
    "labels": lambda: node_object("n", labels={"rack": "r1"}),
    "taints": lambda: node_object("n", taints=[{"key": "a", "effect": "NoSchedule"}]),
    "unschedulable": lambda: node_object("n", unschedulable=True),
    "ready": lambda: node_object("n", ready=False),
}
"""For each field of NodeFacts, a node that differs from `node_object("n")` in that field alone."""


def koordinator(gang: str, minimum: str = "2") -> dict[str, str]:
    return {NAME: gang, MIN: minimum}


def only_pod(batch: Batch) -> PodFacts:
    (pod,) = batch.pods
    return pod


def only_gang(batch: Batch) -> GangFacts:
    (gang,) = batch.gangs
    return gang


class TestWhoMatters:
    def test_our_pod_is_sent_before_it_has_a_node(self) -> None:
        pod = only_pod(History().pods(pod_object("a")))
        assert (pod.name, pod.ours, pod.node, pod.phase) == ("a", True, "", PodPhase.PENDING)

    def test_other_pods_are_sent_only_while_they_use_capacity(self) -> None:
        history = History()
        assert not history.pods(pod_object("a", scheduler="default-scheduler")).pods
        bound = only_pod(history.pods(pod_object("a", scheduler="default-scheduler", node="n", phase="Running")))
        assert (bound.ours, bound.node, bound.gang) == (False, "n", "")
        ended = history.pods(pod_object("a", scheduler="default-scheduler", node="n", phase="Succeeded"))
        assert (ended.pods, ended.removed_pods) == ((), ("uid-a",))

    def test_our_ended_pod_stays(self) -> None:
        history = History()
        history.pods(pod_object("a", node="n"))
        assert only_pod(history.pods(pod_object("a", node="n", phase="Failed"))).phase is PodPhase.FAILED

    def test_a_pod_that_was_never_sent_is_not_removed(self) -> None:
        history = History()
        history.pods(pod_object("a", scheduler="default-scheduler"))
        assert history.remove(PODS, "uid-a").removed_pods == ()

    def test_several_scheduler_names_may_be_ours(self) -> None:
        history = History("muster", "gpu")
        assert only_pod(history.pods(pod_object("a", scheduler="gpu"))).ours


class TestRevisions:
    def test_a_change_is_sent_with_its_revision(self) -> None:
        history = History()
        batch = history.pods(pod_object("a"), pod_object("b"))
        assert batch.changed == {"pods": 2}
        assert batch.through == {"pods": 2}

    def test_a_change_without_new_facts_only_raises_through(self) -> None:
        history = History()
        history.pods(pod_object("a"))
        batch = history.pods(pod_object("a", annotations={"unread": "yes"}))
        assert batch == Batch(through={"pods": 2})

    def test_changed_contains_only_changes_with_an_effect(self) -> None:
        history = History()
        unread = pod_object("a", annotations={"x": "y"})
        batch = history.pods(pod_object("a"), pod_object("b", scheduler="other"), unread)
        assert (batch.changed, batch.through) == ({"pods": 1}, {"pods": 3})

    def test_heartbeats_of_nodes_change_nothing(self) -> None:
        history = History()
        history.nodes(node_object("n"))
        assert history.nodes(node_object("n")) == Batch(through={"nodes": 2})

    def test_a_snapshot_has_the_newest_revisions_nevertheless(self) -> None:
        history = History()
        history.pods(pod_object("a"))
        history.nodes(node_object("n"))
        history.pods(pod_object("a"))
        history.nodes(node_object("n"))
        snapshot = history.state.snapshot()
        assert [pod.revision for pod in snapshot.pods] == [3]
        assert [node.revision for node in snapshot.nodes] == [4]
        assert snapshot.through == {"pods": 3, "nodes": 4}

    def test_revisions_within_a_list_are_not_in_changed(self) -> None:
        history = History()
        history.pods(pod_object("a"))
        page = history.page(PODS, pod_object("b"))
        assert only_pod(page).name == "b"
        assert (page.changed, page.through) == ({}, {"pods": 1})
        end = history.pods(pod_object("c"))
        assert (end.changed, end.through) == ({"pods": 3}, {"pods": 3})

    def test_a_list_with_a_lower_revision_begins_a_new_history(self) -> None:
        history = History()
        history.pods(pod_object("a"))
        history.pods(pod_object("b"))
        history.page(PODS, pod_object("c"))
        assert not history.state.take_history_restarted()
        restored, _ = history.state.apply(ObjectChanges(PODS.kind, [Removed("uid-b")], through=1))
        assert restored.through == {"pods": 1}
        assert all(revision <= 1 for revision in restored.changed.values()), "a subscriber could wait for it for ever"
        assert history.state.take_history_restarted()
        assert not history.state.take_history_restarted()

    def test_a_gang_that_an_annotation_changed_names_the_pods_revision(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g", "2")))
        batch = history.pods(pod_object("a", annotations=koordinator("g", "3")))
        assert batch.pods == ()
        assert (only_gang(batch).minimum, batch.changed) == (3, {"pods": 2})

    def test_a_gang_that_a_definition_changed_names_the_definitions_revision(self) -> None:
        history = History()
        history.pods(pod_object("a", labels={"scheduling.x-k8s.io/pod-group": "g"}))
        batch = history.pod_groups(pod_group_object("g", minimum=4))
        assert (only_gang(batch).minimum, batch.changed) == (4, {"podgroups.scheduling.x-k8s.io": 2})


class TestNodes:
    def test_a_recreated_node_is_not_removed(self) -> None:
        history = History()
        history.nodes(node_object("n", uid="one"))
        again = history.nodes(node_object("n", uid="two"))
        assert [node.uid for node in again.nodes] == ["two"]
        assert history.remove(NODES, "one").removed_nodes == ()
        assert history.remove(NODES, "two").removed_nodes == ("n",)
        assert history.remove(NODES, "two").removed_nodes == ()

    @pytest.mark.parametrize("field", sorted({*NodeFacts.__struct_fields__} - {"name", "revision", "device_backed"}))
    def test_a_change_of_any_field_of_a_node_is_sent(self, field: str) -> None:
        assert field in NODE_CHANGES, f"add a change of NodeFacts.{field} to NODE_CHANGES"
        history = History()
        history.nodes(node_object("n"))
        assert [node.name for node in history.nodes(NODE_CHANGES[field]()).nodes] == ["n"]


class TestClasses:
    def test_a_class_is_sent_once_before_its_first_pod(self) -> None:
        history = History()
        first = history.pods(pod_object("a"))
        assert [each.id for each in first.pod_classes] == [only_pod(first).class_id]
        assert history.pods(pod_object("b")).pod_classes == ()

    def test_an_unused_class_is_dropped_after_two_sweeps(self) -> None:
        history = History()
        history.pods(pod_object("a"))
        history.remove(PODS, "uid-a")
        history.state.sweep()
        assert len(history.state.snapshot().pod_classes) == 1, "it may come again soon"
        assert history.pods(pod_object("b")).pod_classes == ()
        history.remove(PODS, "uid-b")
        history.state.sweep()
        history.state.sweep()
        assert history.state.snapshot().pod_classes == ()
        assert len(history.pods(pod_object("c")).pod_classes) == 1

    def test_a_pod_that_changes_its_class_releases_the_old_one(self) -> None:
        history = History()
        history.pods(pod_object("a", cpu="1"))
        assert len(history.pods(pod_object("a", cpu="2")).pod_classes) == 1
        history.state.sweep()
        history.state.sweep()
        assert len(history.state.snapshot().pod_classes) == 1


class TestPriorities:
    def test_priority_classes_apply_where_admission_did_not(self) -> None:
        history = History()
        assert only_pod(history.pods(pod_object("a", priorityClassName="high"))).priority == 0
        batch = history.priority_classes(priority_class_object("high", 10))
        assert only_pod(batch).priority == 10
        assert batch.changed == {"priorityclasses.scheduling.k8s.io": 2}

    def test_a_priority_set_by_admission_counts(self) -> None:
        history = History()
        history.priority_classes(priority_class_object("high", 10))
        assert only_pod(history.pods(pod_object("a", priorityClassName="high", priority=7))).priority == 7
        assert not history.priority_classes(priority_class_object("high", 20)).pods

    def test_preemption_policies_are_resolved_likewise(self) -> None:
        history = History()
        assert not only_pod(
            history.pods(pod_object("a", priorityClassName="never-preempts", priority=10))
        ).never_preempts
        never_preempts = priority_class_object("never-preempts", 10, preemptionPolicy="Never")
        assert only_pod(history.priority_classes(never_preempts)).never_preempts
        assert history.pods(pod_object("a", priorityClassName="never-preempts", priority=10)).pods == ()
        settled = pod_object(
            "b", priorityClassName="never-preempts", priority=10, preemptionPolicy="PreemptLowerPriority"
        )
        assert not only_pod(history.pods(settled)).never_preempts


class TestTimes:
    def test_a_start_time_is_told_with_the_phase_and_not_before(self) -> None:
        history = History()
        history.pods(pod_object("a", node="n", activeDeadlineSeconds=60))
        assert history.pods(pod_object("a", node="n", activeDeadlineSeconds=60, started=5)).pods == ()
        running = only_pod(
            history.pods(pod_object("a", node="n", activeDeadlineSeconds=60, started=5, phase="Running"))
        )
        assert (running.started_seconds - running.created_seconds, running.expected_seconds) == (5, 60)

    def test_an_edited_duration_is_told(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g") | {DURATION: "90s"}))
        batch = history.pods(pod_object("a", annotations=koordinator("g") | {DURATION: "15m"}))
        assert (only_pod(batch).expected_seconds, batch.gangs) == (900, ())

    def test_a_malformed_duration_is_a_problem_of_the_gang(self) -> None:
        annotations = koordinator("g") | {DURATION: "soon"}
        batch = History().pods(pod_object("a", annotations=annotations, activeDeadlineSeconds=60))
        assert (only_pod(batch).expected_seconds, only_pod(batch).problem) == (60, "")
        assert '"soon"' in only_gang(batch).problems[0].message


class TestMarks:
    def test_g09_a_timeout_mark_changes_the_pod_not_the_gang(self) -> None:
        history = History()
        history.pods(*(pod_object(f"a-{n}", annotations=koordinator("g")) for n in range(2)))
        timed_out = history.pods(*(pod_object(f"a-{n}", annotations=koordinator("g") | TIMED_OUT) for n in range(2)))
        assert [pod.timed_out for pod in timed_out.pods] == [True, True]
        again = history.pods(*(pod_object(f"a-{n}", annotations=koordinator("g")) for n in range(2)))
        assert [pod.timed_out for pod in again.pods] == [False, False]
        assert (timed_out.gangs, again.gangs) == ((), ())

    def test_g22_an_edited_repair_policy_is_told_of_the_gang_alone(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g")))
        batch = history.pods(pod_object("a", annotations=koordinator("g") | {"muster.dev/repair-policy": "Evict"}))
        assert (only_gang(batch).repair_policy, batch.pods) == (RepairPolicy.EVICT, ())

    def test_a_pod_with_none_but_ours_is_plain(self) -> None:
        batch = History().pods(pod_object("a", annotations={DURATION: "90s", "muster.dev/repair-policy": "Evict"}))
        assert (only_pod(batch).gang, only_pod(batch).problem, batch.gangs) == ("", "", ())
        assert only_pod(batch).expected_seconds == 90


class TestGangs:
    def test_pods_of_a_gang_come_with_it(self) -> None:
        batch = History().pods(*(pod_object(f"a-{n}", annotations=koordinator("g")) for n in range(2)))
        assert {pod.gang for pod in batch.pods} == {"koordinator/ml/g"}
        gang = only_gang(batch)
        assert (gang.id, gang.minimum, gang.incarnation) == ("koordinator/ml/g", 2, "uid-a-0")

    def test_another_equal_pod_does_not_change_the_gang(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g")))
        assert history.pods(pod_object("b", second=1, annotations=koordinator("g"))).gangs == ()

    def test_a_gang_is_there_with_its_definition_alone(self) -> None:
        history = History()
        gang = only_gang(history.pod_groups(pod_group_object("g", minimum=3)))
        assert (gang.id, gang.minimum, gang.incarnation) == ("coscheduling/ml/g", 3, "uid-group-g")
        assert history.remove(X_POD_GROUPS, "uid-group-g").removed_gangs == ("coscheduling/ml/g",)

    def test_it_goes_with_its_last_pod(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g")), pod_object("b", annotations=koordinator("g")))
        assert history.remove(PODS, "uid-a").removed_gangs == ()
        assert history.remove(PODS, "uid-b").removed_gangs == ("koordinator/ml/g",)

    def test_it_stays_with_pods_that_ended_or_are_being_deleted(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g")))
        ended = history.pods(pod_object("a", annotations=koordinator("g"), phase="Failed", node="n"))
        deleted = history.pods(pod_object("a", annotations=koordinator("g"), phase="Failed", node="n", deleting=True))
        assert (ended.removed_gangs, deleted.removed_gangs) == ((), ())

    def test_g33_without_its_definition_it_waits(self) -> None:
        history = History()
        history.pod_groups(pod_group_object("g"))
        history.pods(pod_object("a", labels={"scheduling.x-k8s.io/pod-group": "g"}))
        gang = only_gang(history.remove(X_POD_GROUPS, "uid-group-g"))
        assert gang.blocked and gang.minimum == 0

    def test_g35_a_recreated_definition_is_another_incarnation(self) -> None:
        history = History()
        history.pod_groups(pod_group_object("g", uid="one"))
        assert only_gang(history.pod_groups(pod_group_object("g", uid="two"))).incarnation == "two"
        late = history.remove(X_POD_GROUPS, "one")
        assert (late.gangs, late.removed_gangs) == ((), ())

    def test_g35_terminating_pods_do_not_define_the_new_gang(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g", "5")))
        history.pods(pod_object("a", annotations=koordinator("g", "5"), deleting=True))
        gang = only_gang(history.pods(pod_object("b", second=9, annotations=koordinator("g", "2"))))
        assert (gang.minimum, gang.incarnation, gang.problems) == (2, "uid-b", ())

    def test_g16_a_replaced_pod_leaves_the_gang_as_it_is(self) -> None:
        history = History()
        history.pods(*(pod_object(f"a-{n}", annotations=koordinator("g")) for n in range(2)))
        history.remove(PODS, "uid-a-0")
        history.pods(pod_object("a-0", uid="again", second=9, annotations=koordinator("g")))
        (gang,) = history.state.snapshot().gangs
        assert gang.incarnation == "uid-a-0"

    def test_a_pod_may_move_to_another_gang(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g")))
        batch = history.pods(pod_object("a", annotations=koordinator("h")))
        assert only_pod(batch).gang == "koordinator/ml/h"
        assert (only_gang(batch).id, batch.removed_gangs) == ("koordinator/ml/h", ("koordinator/ml/g",))

    def test_a_pod_that_loses_its_marks_is_plain(self) -> None:
        history = History()
        history.pods(pod_object("a", annotations=koordinator("g")))
        batch = history.pods(pod_object("a"))
        assert (only_pod(batch).gang, batch.removed_gangs) == ("", ("koordinator/ml/g",))

    def test_another_schedulers_pods_are_in_no_gang(self) -> None:
        batch = History().pods(pod_object("a", scheduler="other", node="n", annotations=koordinator("g")))
        assert (only_pod(batch).gang, batch.gangs) == ("", ())

    def test_first_lists_are_read_as_a_whole(self) -> None:
        history = History(settled=False)
        history.page(PODS, pod_object("a", second=5, annotations=koordinator("g", "5")))
        history.page(PODS, pod_object("b", second=1, annotations=koordinator("g", "2")))
        settle(history.state)
        (gang,) = history.state.snapshot().gangs
        assert (gang.minimum, gang.incarnation) == (2, "uid-b")


class TestBadInput:
    def test_g26_a_minimum_that_is_no_number_blocks_and_is_quoted(self) -> None:
        gang = only_gang(History().pods(pod_object("a", annotations=koordinator("g", "five"))))
        assert [problem.severity for problem in gang.problems] == [Severity.BLOCKING]
        assert '"five"' in gang.problems[0].message

    @pytest.mark.parametrize("minimum", [0, -1, "x", None, [], 2**70])
    def test_a_pod_group_with_an_impossible_minimum_blocks(self, minimum: object) -> None:
        gang = only_gang(History().pod_groups(pod_group_object("g", minimum=minimum)))
        assert gang.blocked and gang.minimum == 0

    def test_a_request_that_is_no_quantity_is_the_pods_problem(self) -> None:
        pod = only_pod(History().pods(pod_object("a", cpu="lots")))
        assert '"lots"' in pod.problem

    def test_a_pod_with_fields_of_wrong_types_is_told_with_its_problem(self) -> None:
        pod = only_pod(History().pods(pod_object("a", containers="none")))
        assert "containers" in pod.problem

    def test_a_name_that_names_no_gang_is_the_pods_problem(self) -> None:
        pod = only_pod(History().pods(pod_object("a", annotations=koordinator("not/a/name"))))
        assert (pod.gang, '"not/a/name"' in pod.problem) == ("", True)

    @pytest.mark.parametrize("spec", [None, 5, "x", []])
    def test_a_pod_group_without_a_readable_spec_blocks(self, spec: object) -> None:
        group = pod_group_object("g")
        group["spec"] = spec
        assert only_gang(History().pod_groups(group)).blocked

    def test_an_annotation_of_a_megabyte_does_not_matter(self) -> None:
        batch = History().pods(pod_object("a", annotations=koordinator("g") | {"junk": "x" * 1_000_000}))
        assert (only_pod(batch).problem, only_gang(batch).minimum) == ("", 2)

    def test_an_object_that_cannot_be_handled_is_skipped(self) -> None:
        history = History()
        good = history.stamped(PODS, pod_object("good"))
        odd = Pod(ObjectMeta(uid="odd", resource_version="junk"))
        batch, _ = history.state.apply(ObjectChanges(PODS.kind, [odd, good], 1))
        assert [pod.name for pod in batch.pods] == ["good"]
