"""Gangs whose pods all declare something else: what is read at each change is bounded (I12)."""

from typing import Any

import pytest

from builders.clusterstate.history import History, pod_object, scheduling_spec_object
from muster.clusterstate import gangs
from muster.gangs.facts import GangFacts, Severity
from muster.kube.api_resources import PODS

KOORDINATOR = "gang.scheduling.koordinator.sh/"
MESSAGE = "its pods have more than 3 different declarations: those of the oldest pods are read"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "MAX_DECLARATIONS", 3)


def declaring(name: str, minimum: int, second: int) -> dict[str, Any]:
    annotations = {f"{KOORDINATOR}name": "g", f"{KOORDINATOR}min-available": str(minimum)}
    return pod_object(name, annotations=annotations, second=second)


def only_gang(history: History) -> GangFacts:
    (facts,) = history.state.snapshot().gangs
    return facts


def messages(facts: GangFacts, severity: Severity) -> list[str]:
    return [each.message for each in facts.problems if each.severity is severity]


def test_the_oldest_pods_declare_and_a_warning_tells_of_the_others() -> None:
    history = History()
    history.pods(*[declaring(f"p{number}", number + 1, second=30 - number) for number in range(5)])
    facts = only_gang(history)
    assert facts.minimum == 5
    assert MESSAGE in messages(facts, Severity.WARNING)
    assert "p0" not in str(facts.problems)


def test_all_are_read_again_when_they_are_few() -> None:
    history = History()
    history.pods(*[declaring(f"p{number}", number + 1, second=30 - number) for number in range(4)])
    history.remove(PODS, "uid-p3")
    facts = only_gang(history)
    assert facts.minimum == 3
    assert MESSAGE not in messages(facts, Severity.WARNING)


def test_incarnation_follows_the_oldest_live_pod_of_all() -> None:
    history = History()
    pods = [pod_object(f"p{number}", owner=f"job-{number}", second=number) for number in range(8)]
    for number, pod in enumerate(pods):
        pod["metadata"]["annotations"] = declaring("", number % 6 + 1, 0)["metadata"]["annotations"]
    history.pods(*reversed(pods))
    found = []
    for number in (7, *range(7)):
        found.append(only_gang(history).incarnation)
        history.remove(PODS, f"uid-p{number}")
    assert found == [f"job-{number}" for number in (7, *range(7))]


def test_ignored_definitions_are_named_up_to_a_limit() -> None:
    history = History()
    history.specs(*[scheduling_spec_object(f"s{number:02}", "job", minAvailable=2) for number in range(30)])
    history.pods(pod_object("p", owner="job"))
    ignored = [each for each in messages(only_gang(history), Severity.WARNING) if "s0" in each or "s1" in each]
    assert len(ignored) == gangs.MAX_RIVALS


def test_i12_few_pods_are_read_for_the_incarnation_however_much_they_differ() -> None:
    history = History()
    pods = [declaring(f"p{number}", number + 1, second=number) for number in range(20)]
    history.pods(*(pods[:10]), *(pod | {"status": {"phase": "Failed"}} for pod in pods[10:]))
    (gang,) = history.state.gangs._gangs.values()
    assert [each.age.name for each in gang._oldest_members()] == ["p0", "p10"]
