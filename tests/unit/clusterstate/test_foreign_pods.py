"""Pods with the marks of a gang that another scheduler places are named in a Warning, and do not count."""

from typing import Any

from builders.clusterstate.history import (
    X_POD_GROUPS,
    History,
    Object,
    pod_group_object,
    pod_object,
)
from builders.gangs.declarations import problems_of
from muster.gangs.facts import Severity
from muster.kube.api_resources import PODS

ID = "coscheduling/ml/g"


def pod(name: str, **fields: Any) -> Object:
    return pod_object(name, labels={"scheduling.x-k8s.io/pod-group": "g"}, **fields)


def other(name: str, **fields: Any) -> Object:
    return pod(name, scheduler="default-scheduler", **fields)


def messages(history: History) -> list[str]:
    return [message for _, message in problems_of(history.state.gangs.facts[ID])]


def started() -> History:
    history = History()
    history.put(X_POD_GROUPS, pod_group_object("g", minimum=2))
    history.pods(pod("a"))
    return history


def test_they_are_named_with_their_scheduler() -> None:
    history = started()
    history.pods(other("b"), pod("c", scheduler="volcano", second=1))
    ((severity, message),) = problems_of(history.state.gangs.facts[ID])
    assert severity is Severity.WARNING
    assert 'are no members: "b" ("default-scheduler"), "c" ("volcano"). Give all pods' in message


def test_the_pod_that_arrives_first_does_not_matter() -> None:
    history = History()
    history.pods(other("b"))
    assert history.state.gangs.facts == {}
    history.pods(pod("a"))
    assert any('"b" ("default-scheduler")' in each for each in messages(history))


def test_the_warning_names_three_and_stays_while_more_arrive() -> None:
    history = started()
    history.pods(*[other(f"b-{n}", second=n) for n in range(4)])
    (message,) = messages(history)
    assert '"b-2"' in message and '"b-3"' not in message and "and others" in message
    assert history.pods(*[other(f"c-{n}", second=9) for n in range(50)]).gangs == ()


def test_it_ends_with_them() -> None:
    history = started()
    history.pods(other("b"), other("c"), other("d"))
    history.pods(other("b", phase="Succeeded"))
    history.pods(other("c", deleting=True))
    assert '"d"' in messages(history)[0]
    history.remove(PODS, "uid-d")
    assert messages(history) == []
    history.remove(PODS, "uid-b", "uid-c")
    assert history.state.sizes()["foreign_pods"] == 0


def test_a_gang_that_another_scheduler_finished_is_none_of_ours() -> None:
    history = History()
    history.put(X_POD_GROUPS, pod_group_object("g"))
    history.pods(other("b", node="n", phase="Running"))
    history.pods(other("b", node="n", phase="Succeeded"))
    assert history.state.gangs.facts == {}


def test_a_gang_that_only_others_schedule_is_none_of_ours() -> None:
    history = History()
    history.put(X_POD_GROUPS, pod_group_object("g"))
    assert ID in history.state.gangs.facts
    batch = history.pods(other("b", node="n", phase="Running"))
    assert batch.removed_gangs == (ID,)
    assert [each.id for each in history.pods(pod("a")).gangs] == [ID]
    history.remove(PODS, "uid-a")
    assert history.state.gangs.facts == {}
    assert [each.id for each in history.remove(PODS, "uid-b").gangs] == [ID]
