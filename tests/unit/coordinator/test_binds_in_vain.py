"""Gangs whose binds fail again and again do not keep their places from others for ever (I13)."""

import pytest
from msgspec.structs import replace

from builders.core.objects import plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Phase
from muster.coordinator.core.permits.binding import MAX_PAUSE_SECONDS

FOREVER = 10**9
DAY = 86400.0


def without_volumes(first: int) -> Scenario:
    """A gang of 16 takes the whole cluster. Its first pods run; nobody can provision the volumes of the others."""
    scenario = Scenario({f"n{number}": 4 for number in range(4)})
    built = gang("a").of(16).needing(first or 16)
    pods = built.pods()
    scenario.change(gangs=[built.gang_facts()], pods=pods[:first])
    scenario.run()
    claiming = [replace(pod, claims=(f"data-{pod.name}",)) for pod in pods[first:]]
    for pod in claiming:
        scenario.volume_failures[pod.uid] = FOREVER
    scenario.change(pods=claiming)
    scenario.pass_time(60)
    return scenario


@pytest.mark.parametrize("first", [0, 1], ids=["the first start", "later pods"])
def test_i13_volumes_that_nobody_can_provision_do_not_hold_capacity_for_ever(first: int) -> None:
    scenario = without_volumes(first)
    scenario.add_pods(plain_pod("small", cpu=4, age=10))
    scenario.pass_time(600)
    assert scenario.cluster.pods["default/small"].node
    assert any("again and again, and are placed again after a pause" in note for note in scenario.notes())


def test_i13_the_pause_of_binds_in_vain_grows() -> None:
    scenario = without_volumes(0)
    scenario.pass_time(DAY)
    before = len(scenario.binds)
    scenario.pass_time(DAY)
    assert 3 * 20 <= len(scenario.binds) - before <= 3 * DAY / MAX_PAUSE_SECONDS


def test_i7_a_gang_starts_after_its_pause_when_its_volumes_can_be_provisioned() -> None:
    scenario = without_volumes(0)
    scenario.volume_failures.clear()
    scenario.pass_time(120)
    assert scenario.bound("a") == 16
    assert scenario.gang("a").phase is Phase.SATISFIED


def test_the_pause_ends_with_the_pods_that_could_not_be_bound() -> None:
    scenario = without_volumes(1)
    scenario.pass_time(DAY)
    stuck = [pod for pod in scenario.cluster.pods.values() if not pod.node]
    scenario.change(remove_pods=[pod.uid for pod in stuck])
    scenario.change(pods=[replace(pod, uid=f"{pod.uid}/new", claims=()) for pod in stuck])
    scenario.pass_time(60)
    assert scenario.bound("a") == 16


@pytest.mark.parametrize("failing", [1, 4, 5])
def test_i7_a_gang_starts_without_the_volumes_of_its_surplus(failing: int) -> None:
    scenario = Scenario({"n": 8})
    built = gang("a").of(8).needing(4)
    pods = [replace(pod, claims=(f"data-{pod.name}",)) for pod in built.pods()]
    for pod in pods[:failing]:
        scenario.volume_failures[pod.uid] = FOREVER
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    scenario.pass_time(300)
    assert scenario.bound("a") == (8 - failing if failing <= 4 else 0)
    if failing <= 4:
        assert all(len(each.seats) == 8 for each in scenario.binds[:3]), "nobody is bound before it is given up"
