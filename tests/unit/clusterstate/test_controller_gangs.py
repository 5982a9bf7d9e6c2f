"""Pods form one gang with the SchedulingSpec of their controller, in whatever order they arrive."""

from typing import Any

import pytest

from builders.clusterstate.history import (
    SCHEDULING_SPECS,
    History,
    Object,
    pod_object,
    scheduling_spec_object,
)
from muster.gangs.facts import Batch, GangFacts, PodFacts
from muster.kube.api_resources import PODS, ApiResource

QUEUE_JOB = "arbitrator.incubator.k8s.io/v1alpha1 QueueJob"
GANG = "kube-arbitrator/ml/Job.train"


def pod(name: str, **fields: object) -> Object:
    return pod_object(name, owner="train", **fields)  # type: ignore[arg-type]


def spec(name: str = "s", owner: str = "train", **fields: object) -> Object:
    return scheduling_spec_object(name, owner, **{"minAvailable": 2, **fields})  # type: ignore[arg-type]


def streamed(batch: Batch) -> dict[str, PodFacts]:
    return {each.name: each for each in batch.pods}


def now(history: History) -> dict[str, PodFacts]:
    return {each.name: each for each in history.state.snapshot().pods}


def gang(history: History, id_: str = GANG) -> GangFacts:
    return history.state.gangs.facts[id_]


def selector(history: History, name: str) -> dict[str, str]:
    """Node selector of the pod's class."""
    return dict(history.state.pods.classes[now(history)[name].class_id].node_selector)


class TestMembership:
    def test_pods_join_when_the_spec_comes_and_that_is_told(self) -> None:
        history = History()
        history.pods(pod("a"), pod("b", node="n", phase="Running"), pod_object("c", owner="other"), pod_object("d"))
        assert {each.gang for each in now(history).values()} == {""}
        batch = history.specs(spec())
        assert {name: each.gang for name, each in streamed(batch).items()} == {"a": GANG, "b": GANG}
        assert batch.changed[SCHEDULING_SPECS.kind] == history.revision
        assert gang(history).minimum == 2

    def test_pods_that_come_after_the_spec_are_members_at_once(self) -> None:
        history = History()
        history.specs(spec())
        assert streamed(history.pods(pod("a")))["a"].gang == GANG

    def test_pods_of_a_queue_job_wait_for_its_spec(self) -> None:
        history = History(waiting_kinds=["QueueJob.arbitrator.incubator.k8s.io"])
        history.pods(pod("a", owner_kind=QUEUE_JOB), pod_object("b", owner="train", owner_kind="other.io/v1 QueueJob"))
        id_ = "kube-arbitrator/ml/QueueJob.train"
        assert {name: each.gang for name, each in now(history).items()} == {"a": id_, "b": ""}
        assert gang(history, id_).blocked
        history.specs(spec(owner_kind=QUEUE_JOB))
        assert not gang(history, id_).blocked

    def test_a_spec_has_no_say_in_another_namespace(self) -> None:
        history = History()
        history.pods(pod("a"))
        history.specs(spec(namespace="dev"))
        assert now(history)["a"].gang == ""

    def test_a_spec_has_no_say_in_pods_of_other_schedulers(self) -> None:
        history = History()
        history.specs(spec())
        history.pods(pod("a", scheduler="other", node="n"))
        assert now(history)["a"].gang == ""

    def test_a_pods_own_marks_take_precedence(self) -> None:
        history = History()
        history.specs(spec(nodeSelector={"disk": "ssd"}))
        history.pods(pod("a", labels={"scheduling.x-k8s.io/pod-group": "g"}))
        assert now(history)["a"].gang == "coscheduling/ml/g"
        assert selector(history, "a") == {}
        assert any("kube-arbitrator" in each.message for each in gang(history, "coscheduling/ml/g").problems)

    def test_marks_without_a_name_are_valid_in_a_controller_gang(self) -> None:
        history = History()
        history.pods(pod("a", cpu="junk", annotations={"gang.scheduling.koordinator.sh/min-available": "2"}))
        before = now(history)["a"].problem
        assert before.startswith("gang.scheduling.koordinator.sh/min-available without the gang's name")
        history.specs(spec())
        after = now(history)["a"]
        assert (after.gang, after.problem in before, after.problem.startswith("gang.")) == (GANG, True, False)
        assert "junk" in after.problem

    def test_what_else_is_wrong_with_a_pod_stays_when_it_joins_and_leaves(self) -> None:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
        nameless = {"gang.scheduling.koordinator.sh/min-available": "2"}
        history = History()
        history.pods(pod("a", annotations=nameless, volumes=volumes))
        nameless_said, _, claim_said = now(history)["a"].problem.partition("; ")
        assert "without the gang's name" in nameless_said
        assert '"missing"' in claim_said
        history.specs(spec(nodeSelector={"disk": "ssd"}))
        assert (now(history)["a"].gang, now(history)["a"].problem) == (GANG, claim_said)
        assert selector(history, "a") == {"disk": "ssd"}
        history.specs(spec(owner="other"))
        assert (selector(history, "a"), now(history)["a"].problem) == ({}, claim_said)

    def test_the_oldest_of_two_specs_counts(self) -> None:
        history = History()
        history.pods(pod("a"))
        history.specs(spec("young", second=5, minAvailable=3, nodeSelector={"disk": "hdd"}))
        assert (gang(history).minimum, selector(history, "a")) == (3, {"disk": "hdd"})
        history.specs(spec("old", second=1, minAvailable=1, nodeSelector={"disk": "ssd"}))
        assert (gang(history).minimum, selector(history, "a")) == (1, {"disk": "ssd"})
        assert any('"ml/young" defines this gang too' in each.message for each in gang(history).problems)
        history.remove(SCHEDULING_SPECS, "uid-spec-old")
        assert (gang(history).minimum, selector(history, "a")) == (3, {"disk": "hdd"})

    def test_a_spec_without_controller_is_told_as_a_gang_that_waits(self) -> None:
        history = History()
        history.specs(spec("s", ""))
        assert gang(history, "kube-arbitrator/ml/s").blocked


class TestWithoutSpec:
    def test_i1_pods_stay_a_gang_when_their_spec_is_removed_first(self) -> None:
        history = History()
        history.pods(pod("a"))
        history.specs(spec(nodeSelector={"disk": "ssd"}))
        history.remove(SCHEDULING_SPECS, "uid-spec-s")
        history.pods(pod("b"))
        assert {each.gang for each in now(history).values()} == {GANG}
        assert selector(history, "a") == {}
        assert gang(history).blocked

    def test_when_its_pods_are_gone_nothing_is_left_of_it(self) -> None:
        history = History()
        history.pods(pod("a"))
        history.specs(spec())
        history.remove(SCHEDULING_SPECS, "uid-spec-s")
        history.remove(PODS, "uid-a")
        assert (history.state.gangs.facts, len(history.state.owners)) == ({}, 0)
        history.pods(pod("b", uid="other"))
        assert now(history)["b"].gang == ""

    def test_a_pod_that_is_let_go_by_its_controller_is_no_member_any_more(self) -> None:
        history = History()
        history.specs(spec())
        history.pods(pod("a"))
        history.pods(pod_object("a"))
        assert now(history)["a"].gang == ""

    def test_a_spec_that_changes_hands(self) -> None:
        history = History()
        history.pods(pod("a"), pod_object("b", owner="other"))
        history.specs(spec())
        history.specs(spec(owner="other"))
        assert now(history)["b"].gang == "kube-arbitrator/ml/Job.other"
        assert gang(history).blocked


class TestNodeSelector:
    def test_that_of_the_job_holds_for_its_pods_too(self) -> None:
        history = History()
        history.pods(pod("a", nodeSelector={"zone": "z"}))
        batch = history.specs(spec(nodeSelector={"disk": "ssd"}))
        assert selector(history, "a") == {"disk": "ssd", "zone": "z"}
        assert streamed(batch)["a"].class_id in {each.id for each in batch.pod_classes}

    def test_it_may_change_and_go(self) -> None:
        history = History()
        history.specs(spec(nodeSelector={"disk": "ssd"}))
        history.pods(pod("a", nodeSelector={"zone": "z"}))
        history.specs(spec(nodeSelector={"disk": "hdd"}))
        assert selector(history, "a") == {"disk": "hdd", "zone": "z"}
        history.specs(spec())
        assert selector(history, "a") == {"zone": "z"}

    @pytest.mark.parametrize("spec_first", [True, False])
    def test_a_clash_is_the_pods_problem_until_it_is_mended(self, spec_first: bool) -> None:
        history = History()
        objects: list[tuple[ApiResource[Any], Object]] = [
            (SCHEDULING_SPECS, spec(nodeSelector={"disk": "ssd"})),
            (PODS, pod("a", nodeSelector={"disk": "x"})),
        ]
        for resource, each in objects if spec_first else reversed(objects):
            history.put(resource, each)
        text = 'nodeSelector has "disk": "x", but nodeSelector of SchedulingSpec "ml/s" has "ssd": no node has both'
        assert now(history)["a"].problem.startswith(text)
        history.specs(spec(nodeSelector={"disk": "x"}))
        assert now(history)["a"].problem == ""

    def test_one_that_cannot_be_read_makes_the_gang_wait_and_narrows_nothing(self) -> None:
        history = History()
        history.pods(pod("a"))
        history.specs(spec(nodeSelector="ssd"))
        assert (gang(history).blocked, selector(history, "a")) == (True, {})

    def test_whoever_is_asked_about_such_a_pod_must_have_seen_the_spec(self) -> None:
        history = History()
        history.specs(spec(nodeSelector={"disk": "ssd"}))
        seen = history.revision
        assert history.pods(pod("a")).changed[SCHEDULING_SPECS.kind] == seen
