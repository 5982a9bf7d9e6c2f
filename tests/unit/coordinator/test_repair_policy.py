"""Started gangs that cannot be completed wait, or are evicted and start again, with a reason."""

from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Phase
from muster.coordinator.core.events import RecordState
from muster.gangs.facts import RepairPolicy


def half_started(built: CoreGang) -> Scenario:
    """Of 8 pods 4 are bound when the coordinator dies; another scheduler takes two of the seats that were left."""
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(built)
    seats = until(scenario, Bind).seats
    for seat in seats[:4]:
        scenario.bind(seat)
    scenario.crash()
    (left,) = {seat.node for seat in seats[4:]}
    scenario.intrude(plain_pod("x1"), left)
    scenario.intrude(plain_pod("x2"), left)
    scenario.start()
    scenario.run_effects()
    return scenario


def test_g22_evict_takes_the_whole_gang_back_to_the_queue() -> None:
    built = gang("a").of(8).with_repair_policy(RepairPolicy.EVICT)
    scenario = half_started(built)
    assert scenario.bound("a") == 6
    assert scenario.gang("a").phase is Phase.REPAIRING
    scenario.pass_time(301)
    assert scenario.bound("a") == 0
    assert any("it starts again" in note for note in scenario.notes())
    assert built.id not in scenario.etcd
    missing = [pod for pod in built.pods() if pod.uid not in scenario.cluster.pods]
    scenario.add_pods(*[replace(pod, uid=f"{pod.uid}/new") for pod in missing])
    scenario.run_effects()
    assert scenario.bound("a") == 0, "a whole gang again: six seats are not enough"
    scenario.change(nodes=[node("k", 2)])
    scenario.run_effects()
    assert scenario.bound("a") == 8


def test_g22_wait_keeps_running_pods_and_reports_it() -> None:
    scenario = half_started(gang("a").of(8))
    scenario.pass_time(301)
    assert scenario.bound("a") == 6
    assert any("it keeps running" in note for note in scenario.notes())
    assert any("must be placed again" in note for note in scenario.notes())
    scenario.change(nodes=[node("k", 2)])
    scenario.run_effects()
    assert scenario.bound("a") == 8


def test_g22_a_gang_at_its_minimum_is_not_evicted() -> None:
    scenario = half_started(gang("a").of(8).needing(6).with_repair_policy(RepairPolicy.EVICT))
    scenario.pass_time(301)
    assert scenario.bound("a") == 6


def test_g22_a_crash_in_the_middle_of_the_eviction() -> None:
    scenario = half_started(gang("a").of(8).with_repair_policy(RepairPolicy.EVICT))
    scenario.graceful = True
    scenario.now += 301
    scenario.wake()
    scenario.do(0)
    assert scenario.etcd["test/default/a"].state is RecordState.UNPERMITTED
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    scenario.finish_deletions()
    scenario.run_effects()
    assert scenario.bound("a") == 0
    assert not scenario.gang("a").permitted


def test_i6_a_gang_whose_pod_can_never_be_bound_is_evicted_by_its_policy() -> None:
    """It is placed again and again: that is no progress."""
    built = gang("a").of(4).with_repair_policy(RepairPolicy.EVICT)
    scenario = Scenario({"n": 8})
    scenario.bind_failures[built.pods()[0].uid] = 10**9
    scenario.add(built)
    scenario.pass_time(1000)
    assert any("it starts again" in note for note in scenario.notes())
