"""Ends of backfill reservations: pods that never end, liars about their run time, shares of the cluster (I13)."""

import math
from dataclasses import replace as changed
from itertools import count

import pytest
from msgspec.structs import replace

from builders.core.actions import crowded, ends, full
from builders.core.objects import plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.backfill.run_times import DISTRUST_SECONDS
from muster.coordinator.core.events import Rules
from muster.coordinator.core.machine import DEFAULTS
from muster.coordinator.core.preemption.nomination import longest_run
from muster.gangs.facts import PodFacts

TIMEOUT = DEFAULTS.reservation_timeout_seconds
STARVING = DEFAULTS.starvation_after_seconds + 1
DAY = 86400.0
FORTY = {f"n{number}": 4 for number in range(10)}


def reserved(scenario: Scenario) -> bool:
    return any(each.backfill for each in scenario.leader.cache.nominations.values())


def beside_a_service(rules: Rules = DEFAULTS) -> Scenario:
    """One of 40 cpus is used by a pod that never ends, and a gang of 40 starves."""
    scenario = Scenario(FORTY, rules=rules)
    scenario.add_pods(plain_pod("service"))
    scenario.run()
    scenario.add(gang("big").of(40))
    scenario.pass_time(STARVING)
    return scenario


def expirations(scenario: Scenario) -> list[str]:
    return [
        event.note for report in scenario.reports for event in report.events if event.reason == "ReservationExpired"
    ]


def test_i13_capacity_is_not_withheld_for_ever_for_a_pod_that_never_ends() -> None:
    scenario = beside_a_service()
    assert reserved(scenario)
    scenario.add_pods(plain_pod("small"))
    scenario.pass_time(TIMEOUT - 60)
    assert not [pod for pod in scenario.cluster.pods.values() if pod.name == "small" and pod.node]
    scenario.pass_time(60)
    assert scenario.cluster.pods["default/small"].node
    (note,) = expirations(scenario)
    assert "pod default/service on node n0 has not ended in the 3600 s" in note
    assert "none is reserved for 3600 s" in note
    assert scenario.claims_ended == [("reservation", "expired")]
    assert any("gang default/big cannot start" in note and "pod default/service" in note for note in scenario.notes())


def test_i13_expired_reservations_withhold_capacity_for_a_part_of_the_time() -> None:
    scenario = beside_a_service()
    withheld = 0
    for _ in range(30 * 24):
        withheld += reserved(scenario)
        scenario.pass_time(DAY / 24)
    assert 20 <= withheld <= 40, "30 days have 720 hours; the pauses double to a day"
    assert len(expirations(scenario)) == withheld


def test_i13_many_starving_gangs_withhold_capacity_for_half_of_the_time() -> None:
    scenario = beside_a_service()
    scenario.add(*(gang(f"big{number}").of(40 - number).created(number) for number in range(1, 10)))
    scenario.add_pods(plain_pod("second"), plain_pod("third"))
    withheld = 0
    for _ in range(200):
        withheld += reserved(scenario)
        scenario.pass_time(TIMEOUT / 8)
    assert withheld <= 115


def test_i13_other_nodes_are_chosen_when_a_declared_run_time_is_overrun() -> None:
    scenario = full(gang("slow").of(4), nodes={"a": 4, "b": 4})
    scenario.pass_time(1000)
    scenario.add(gang("liar").of(4).running_for(100))
    scenario.run_effects()
    liars_node = next(pod.node for pod in scenario.cluster.pods.values() if "/liar" in pod.gang)
    scenario.add(gang("p").of(4).created(50))
    scenario.pass_time(STARVING)
    (nomination,) = scenario.leader.cache.nominations.values()
    assert {node for node, _ in nomination.capacity} == {liars_node}
    assert nomination.starts_at < math.inf
    scenario.pass_time(100 - STARVING + 59)
    assert nomination in scenario.leader.cache.nominations.values()
    scenario.pass_time(2)
    assert nomination not in scenario.leader.cache.nominations.values()
    assert "liar-0 on node" in expirations(scenario)[0]
    assert scenario.gang("liar").run_time.overran
    assert scenario.claims_ended == [("reservation", "overrun")]
    scenario.pass_time(STARVING + 2)
    (nomination,) = scenario.leader.cache.nominations.values()
    assert nomination.starts_at == math.inf, "what the gang declares is not believed again"


def test_i13_a_run_time_that_was_overrun_is_not_believed_when_another_gang_starves() -> None:
    scenario = full(gang("slow").of(4), nodes={"a": 4, "b": 4})
    scenario.pass_time(1000)
    scenario.add(gang("liar").of(4).running_for(100))
    scenario.run_effects()
    first, second = gang("p").of(4).created(50), gang("q").of(4).created(60)
    scenario.add(first)
    scenario.pass_time(161)
    assert scenario.gang("liar").run_time.overran
    scenario.delete(first)
    scenario.add(second)
    for _ in range(100):  # nobody has a reservation for as long as the first one was held in vain
        scenario.pass_time(5)
        if reserved(scenario):
            break
    (nomination,) = scenario.leader.cache.nominations.values()
    assert (nomination.owner, nomination.starts_at) == (scenario.gang("q").id, math.inf)


def test_i13_a_run_time_that_was_overrun_is_not_believed_of_its_owner() -> None:
    """Pods of one Job, whose names differ in a suffix; that ends a day after the last overrun."""
    scenario = full(gang("slow").of(4), nodes={"a": 4, "b": 4})
    scenario.pass_time(1000)
    scenario.add_pods(*(replace(plain_pod(f"job-x{number}k2p"), expected_seconds=100.0) for number in range(4)))
    scenario.run_effects()
    starving = gang("p").of(4).created(50)
    scenario.add(starving)
    scenario.pass_time(161)
    assert expirations(scenario)
    scenario.delete(starving)
    pods = [pod for pod in scenario.cluster.pods.values() if pod.name.startswith("job-")]
    scenario.change(remove_pods=[pod.uid for pod in pods])
    others = plain_pod("job-bcdfg"), plain_pod("job-2"), plain_pod("jib-1")
    scenario.add_pods(*(replace(pod, expected_seconds=100.0) for pod in others))
    scenario.run_effects()
    gangs = [scenario.leader.cache.gang_of[pod.uid] for pod in others]
    assert [each.run_time.overran for each in gangs] == [True, True, False]
    scenario.pass_time(DISTRUST_SECONDS)
    assert not any(each.run_time.overran for each in gangs)


def test_i8_a_gang_starts_among_liars_that_replace_each_other() -> None:
    """Each of them is a gang of its own, of which no overrun is known yet."""
    scenario = Scenario({"a": 4, "b": 4})
    numbers = count(1)

    def liar() -> PodFacts:
        number = next(numbers)
        return replace(plain_pod(f"x{number}", age=number), expected_seconds=2000.0)

    for _ in range(8):
        scenario.add_pods(liar())
        scenario.pass_time(375)
    scenario.add(gang("big").of(4).created(5))
    for _ in range(4 * 3600 // 75):
        scenario.pass_time(75)
        pods = [pod for pod in scenario.cluster.pods.values() if not pod.gang]
        over = [pod.uid for pod in pods if pod.seated and scenario.unix - pod.started_seconds >= 3000]
        scenario.change(remove_pods=over, pods=[liar() for _ in range(3 - sum(not pod.node for pod in pods))])
    assert scenario.bound("big") == 4


def test_i8_a_pod_that_terminates_for_ever_does_not_attract_every_reservation() -> None:
    scenario = Scenario({"a": 4, "b": 4})
    scenario.add_pods(plain_pod("zombie", cpu=4))
    scenario.run()
    scenario.change(pods=[replace(scenario.cluster.pods["default/zombie"], deleting=True)])
    scenario.add_pods(*(plain_pod(f"x{number}") for number in range(4)))
    scenario.run()
    scenario.add(gang("big").of(4).created(5))
    for number in range(4, 1500):
        scenario.pass_time(10)
        small = [pod for pod in scenario.cluster.pods.values() if pod.name.startswith("x")]
        ended = [pod.uid for pod in small if pod.node][:1]
        new = [] if len(small) > 6 else [plain_pod(f"x{number}", age=number)]
        scenario.change(remove_pods=ended, pods=new)
        if scenario.bound("big"):
            break
    assert scenario.bound("big") == 4


def test_i13_new_liars_and_new_gangs_withhold_capacity_for_half_of_the_time() -> None:
    scenario = Scenario(FORTY)
    big, liar, withheld, expired = gang("big0").of(40), plain_pod("liar0"), 0, -1
    for _ in range(1000):
        if len(scenario.claims_ended) > expired:
            expired = len(scenario.claims_ended)
            scenario.delete(big)
            former, liar = liar, replace(plain_pod(f"liar{scenario.now}"), expected_seconds=3000.0)
            scenario.add_pods(liar)
            scenario.run()
            scenario.change(remove_pods=[former.uid] if former.uid in scenario.cluster.pods else [])
            big = gang(f"big{scenario.now}").of(40).created(int(scenario.now))
            scenario.add(big)
        scenario.pass_time(100)
        withheld += reserved(scenario)
    assert scenario.claims_ended[0] == ("reservation", "overrun")
    assert withheld <= 550


def test_i13_a_gang_that_overran_its_run_time_does_not_backfill() -> None:
    liar = gang("liar").of(2).needing(1).running_for(10)
    scenario = full(liar, nodes={"a": 2})
    scenario.add(gang("p").of(2).created(50))
    scenario.pass_time(STARVING + 100)
    assert scenario.gang("liar").run_time.overran
    later = replace(liar.pods()[0], uid="later", name="later")
    scenario.add_pods(later)
    scenario.run_effects()
    assert later.uid in scenario.gang("liar").pending
    assert longest_run(scenario.gang("liar").group) == math.inf
    scenario.change(remove_pods=[later.uid])
    scenario.delete(liar)
    scenario.run_effects()
    assert scenario.bound("p") == 2


def test_i13_no_more_than_a_share_of_the_cluster_is_reserved() -> None:
    rules = Rules(max_reserved_share=0.5)
    for size, may in ((20, True), (24, False)):
        scenario = full(*(gang(f"g{number}").of(4) for number in range(10)), nodes=FORTY, rules=rules)
        scenario.add(gang("p").of(size))
        scenario.pass_time(STARVING)
        assert reserved(scenario) is may
        limit = "it needs more than 50% of the cluster's cpu, which may be reserved"
        assert any(limit in note for note in scenario.notes()) is not may


def test_i13_nothing_is_reserved_until_pods_that_run_for_days_end() -> None:
    scenario = full(gang("long").of(4).running_for(30 * DAY), nodes={"n": 4})
    scenario.add(gang("p").of(4))
    scenario.pass_time(2 * STARVING)
    assert not reserved(scenario)
    assert any("pods that would have to end declare to run for more than 3600 s" in note for note in scenario.notes())


def test_i13_a_reservation_is_made_anew_after_the_pause_and_ends_with_the_start() -> None:
    scenario = beside_a_service()
    scenario.pass_time(TIMEOUT + 1)
    assert not reserved(scenario)
    scenario.pass_time(TIMEOUT + 10)
    assert reserved(scenario)
    ends(scenario, "default/service")
    scenario.run_effects()
    assert scenario.bound("big") == 40
    assert scenario.gang("big").group.preemption.reservations_in_vain == 0


def test_i13_an_edit_of_its_group_does_not_end_the_pause_of_reservations() -> None:
    names = "default/big", "default/small"
    scenario = crowded(FORTY)
    scenario.add_pods(plain_pod("service"), plain_pod("another"))
    scenario.run()
    big = gang("big").of(39)
    scenario.add(big)
    scenario.pass_time(STARVING + 3 * TIMEOUT + 10)
    assert len(expirations(scenario)) == 2
    scenario.change(gangs=[big.with_group(*names).gang_facts()])
    scenario.add(gang("small").of(1).created(60).with_group(*names))
    scenario.run_effects()
    assert scenario.gang("big").group is scenario.gang("small").group
    scenario.pass_time(1.5 * TIMEOUT)
    assert not reserved(scenario), "the second pause is twice as long, and nobody gets a reservation in the first half"
    scenario.pass_time(0.5 * TIMEOUT + STARVING)
    assert reserved(scenario)


def test_i11_a_paused_group_is_forgotten_with_its_gang() -> None:
    scenario = crowded(FORTY)
    scenario.add_pods(plain_pod("service"))
    scenario.run()
    big = gang("big").of(40)
    scenario.add(big)
    scenario.pass_time(STARVING + TIMEOUT)
    assert expirations(scenario)
    scenario.delete(big)
    scenario.run_effects()
    before = scenario.now
    scenario.pass_time(TIMEOUT * 3)
    wake = scenario.leader.next_wake()
    assert wake is None or wake > before + TIMEOUT * 2


@pytest.mark.parametrize("how", ["edited", "recreated"])
def test_i13_reservations_that_end_early_withhold_capacity_for_half_of_the_time(how: str) -> None:
    """A tenant edits or replaces its gangs before their reservations expire."""
    scenario, withheld = Scenario({"n": 8}), 0
    scenario.add(gang("service", "a").of(1))
    scenario.run()
    first, other = gang("x", "a").of(8), gang("y", "a").of(8)
    scenario.add(first, other)
    for number in range(2000):
        scenario.pass_time(25)
        withheld += reserved(scenario)
        if number % 24 == 0 and how == "edited":
            scenario.change(gangs=[first.needing(9).gang_facts()])
            scenario.run_effects()
            scenario.change(gangs=[first.gang_facts()])
            first, other = other, first
        elif number % 24 == 0:
            scenario.delete(first)
            first, other = other, gang(f"x{number}", "a").of(8)
            scenario.add(other)
    assert 800 <= withheld <= 1100


def test_i13_a_declared_priority_gets_no_reservation_of_a_gang_of_higher_priority() -> None:
    scenario = Scenario(FORTY)
    scenario.add_pods(plain_pod("service"))
    scenario.run()
    scenario.add(gang("big").of(40).with_priority(100).never_preempting().created(50))
    scenario.pass_time(STARVING)
    (held,) = scenario.leader.cache.nominations.values()
    scenario.add(changed(gang("declared", "a").of(40), declared_priority=2_147_483_647))
    scenario.pass_time(10 * STARVING)
    assert [each.owner for each in scenario.leader.cache.nominations.values()] == [held.owner]
