"""Gangs with minimum resources above their own requests starve as others do (I8, I13)."""

from builders.core.actions import ends, full
from builders.core.objects import node
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Phase
from muster.coordinator.core.machine import DEFAULTS

STARVING = DEFAULTS.starvation_after_seconds


def stream(scenario: Scenario, seconds: float, run: float = 5.0) -> None:
    """Lets small gangs come for ever: each runs for a while, and there are always some that wait."""
    until, count = scenario.now + seconds, 0
    while scenario.now < until:
        pods = [pod for pod in scenario.cluster.pods.values() if pod.name.startswith("s")]
        if sum(not pod.node for pod in pods) < 4:
            scenario.add(gang(f"s{scenario.now:.1f}-{count}").of(2).created(int(scenario.now)))
            count += 1
        over = [pod.uid for pod in pods if pod.node and pod.started_seconds + run <= scenario.unix]
        ends(scenario, *over[:2])
        scenario.change(remove_pods=over[:2])
        scenario.pass_time(0.5)


def test_i8_a_gang_with_minimum_resources_starts_under_a_stream_of_small_ones() -> None:
    scenario = Scenario({f"n{number}": 4 for number in range(4)})
    stream(scenario, 10)
    scenario.add(gang("a").of(4).needing_free_cpu(12).created(int(scenario.now)))
    stream(scenario, 2)
    assert scenario.gang("a").phase is Phase.GATHERING
    stream(scenario, STARVING + 30)
    assert scenario.bound("a") == 4


def test_i8_minimum_resources_are_waived_when_others_starve() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4, "m": 4})
    scenario.add(gang("a").of(2).needing_free_cpu(6))
    scenario.pass_time(STARVING - 1)
    assert scenario.bound("a") == 0
    assert scenario.gang("a").phase is Phase.GATHERING
    scenario.pass_time(2)
    assert scenario.bound("a") == 2


def test_i8_a_gang_gets_a_reservation_when_its_minimum_resources_are_waived() -> None:
    scenario = full(gang("b").of(7), nodes={"n": 4, "m": 4})
    scenario.add(gang("a").of(2).needing_free_cpu(6))
    scenario.pass_time(STARVING + 2)
    (reservation,) = scenario.leader.cache.nominations.values()
    assert reservation.backfill and reservation.owner.endswith("/a"), "it need not starve once more"


def test_i13_minimum_resources_that_are_declared_again_are_waived_too() -> None:
    scenario = full(gang("b").of(7), nodes={"n": 4, "m": 4})
    a = gang("a").of(2).needing_free_cpu(6)
    scenario.add(a)
    for free in (0, 6):
        scenario.change(gangs=[a.needing_free_cpu(free).gang_facts()])
        scenario.run()
    assert scenario.gang("a").phase is Phase.GATHERING
    scenario.pass_time(STARVING + 2)
    assert scenario.gang("a").phase is not Phase.GATHERING


def test_minimum_resources_that_the_cluster_does_not_have_are_not_waived() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(2).needing_free_cpu(6))
    scenario.pass_time(10 * STARVING)
    assert scenario.gang("a").phase is Phase.GATHERING
    scenario.change(nodes=[node("m", 4)])
    scenario.run()
    assert scenario.bound("a") == 2


def test_i11_a_gang_that_is_gone_is_not_waited_for() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4, "m": 4})
    built = gang("a").of(2).needing_free_cpu(6)
    scenario.add(built)
    scenario.pass_time(5)
    scenario.delete(built)
    scenario.run()
    assert scenario.leader.next_wake() is None
