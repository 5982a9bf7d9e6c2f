"""PodGroups that controllers create for any pods: they make no gang, whatever the order of events."""

import itertools
from typing import Any

import pytest

from builders.clusterstate.history import (
    NATIVE_POD_GROUPS,
    X_POD_GROUPS,
    History,
    Object,
    native_pod_group_object,
    pod_group_object,
    pod_object,
    scheduling_spec_object,
)
from muster.gangs.facts import PodFacts

OTHER = {"scheduling.x-k8s.io/pod-group": "c"}
GANG = {"gang": {"minCount": 2}}


def pod(name: str, **fields: Any) -> Object:
    """A pod of Job j as a Job controller with the gate WorkloadWithJob creates it."""
    return pod_object(name, owner="j", schedulingGroup={"podGroupName": "g"}, **fields)


def group(policy: Any = None, *, owner: str = "j", **spec: Any) -> Object:
    return native_pod_group_object("g", policy, owner=owner, **spec)


def now(history: History) -> dict[str, PodFacts]:
    return {each.name: each for each in history.state.snapshot().pods}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pods_of_a_jobs_basic_group_are_plain(order: tuple[int, ...]) -> None:
    history = History()
    events = [
        lambda: history.put(NATIVE_POD_GROUPS, group()),
        lambda: history.pods(pod("a")),
        lambda: history.pods(pod("b", node="n", phase="Running")),
    ]
    for each in order:
        events[each]()
    assert {name: (each.gang, each.problem) for name, each in now(history).items()} == {"a": ("", ""), "b": ("", "")}
    assert history.state.gangs.facts == {}


@pytest.mark.parametrize("first", ["group", "pods"])
def test_a_jobs_basic_group_gives_no_warning_beside_other_marks(first: str) -> None:
    history = History()
    history.put(X_POD_GROUPS, pod_group_object("c"))
    if first == "group":
        history.put(NATIVE_POD_GROUPS, group())
    history.pods(pod("a", labels=OTHER), pod("b", labels=OTHER))
    history.put(NATIVE_POD_GROUPS, group())
    assert {each.gang for each in now(history).values()} == {"coscheduling/ml/c"}
    assert list(history.state.gangs.facts) == ["coscheduling/ml/c"]
    assert history.state.gangs.facts["coscheduling/ml/c"].problems == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"policy": GANG},
        {"owner": ""},
        {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
        {"disruptionMode": {"all": {}}},
        {"preemptionPolicy": "Never"},
        {"parentCompositePodGroupName": "root"},
        {"policy": {"basic": {}, "gang": {"minCount": 2}}},
    ],
)
def test_a_group_that_declares_more_is_a_gang(spec: dict[str, Any]) -> None:
    history = History()
    history.put(NATIVE_POD_GROUPS, group(**spec))
    history.pods(pod("a"))
    assert now(history)["a"].gang == "native/ml/g"


@pytest.mark.parametrize("spec", [{}, {"disruptionMode": {"single": {}}, "priority": 0}, {"disruptionMode": "Pod"}])
def test_defaults_of_the_api_server_declare_nothing(spec: dict[str, Any]) -> None:
    history = History()
    history.put(NATIVE_POD_GROUPS, group(**spec))
    history.pods(pod("a"))
    assert now(history)["a"].gang == ""


def test_a_gang_of_the_same_name_takes_the_pods() -> None:
    history = History()
    history.pods(pod("a"))
    history.put(NATIVE_POD_GROUPS, group())
    history.remove(NATIVE_POD_GROUPS, "uid-native-g")
    assert (now(history)["a"].gang, history.state.gangs.facts["native/ml/g"].blocked) == ("native/ml/g", True)
    history.put(NATIVE_POD_GROUPS, group(GANG, uid="other"))
    assert not history.state.gangs.facts["native/ml/g"].blocked


def test_a_scheduling_spec_of_the_job_still_counts() -> None:
    history = History()
    history.pods(pod("a"), pod("b"))
    history.put(NATIVE_POD_GROUPS, group())
    history.specs(scheduling_spec_object("s", "j", minAvailable=2))
    assert {each.gang for each in now(history).values()} == {"kube-arbitrator/ml/Job.j"}
    history.remove(NATIVE_POD_GROUPS, "uid-native-g")
    assert {each.gang for each in now(history).values()} == {"kube-arbitrator/ml/Job.j"}
    assert any(
        "dialect native" in each.message for each in history.state.gangs.facts["kube-arbitrator/ml/Job.j"].problems
    )
    history.put(NATIVE_POD_GROUPS, group())
    assert history.state.gangs.facts["kube-arbitrator/ml/Job.j"].problems == ()


def test_a_group_of_another_scheduler_is_no_gang() -> None:
    history = History()
    history.put(NATIVE_POD_GROUPS, group(GANG))
    history.pods(pod("a", scheduler="default-scheduler", node="n"))
    assert history.state.gangs.facts == {}


def test_entries_end_with_pods_and_groups() -> None:
    history = History()
    history.pods(pod("a"), pod("b"))
    history.put(NATIVE_POD_GROUPS, group())
    history.pods(pod_object("b", scheduler="other"))
    history.remove(NATIVE_POD_GROUPS, "uid-native-g")
    assert history.state.sizes()["basic_groups"] == 1
    history.pods(pod_object("a", owner="j"))
    assert history.state.sizes()["basic_groups"] == 0
