"""What is computed about starving gangs is computed in slices: one step has an upper bound on its work (I12)."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from builders.core.objects import node, plain_pod, pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.backfill import expected_completions, reservation
from muster.coordinator.core.effects import Effect
from muster.coordinator.core.events import Delta, Event, Now, Tick
from muster.coordinator.core.gang.verdicts import Verdict
from muster.gangs.facts import Batch


def with_distinct_infeasible_gangs(count: int) -> Scenario:
    """Gangs that fit nowhere, each of a class of its own, behind which one waits that fits when others have ended."""
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(2).running_for(1000))
    scenario.run()
    for number in range(count):
        name = f"never{number:03}"
        lonely = replace(pod_class(1), id=name, node_selector=(("pool", name),))
        scenario.cluster.classes[name] = lonely
        scenario.tell(Delta(Batch(pod_classes=(lonely,))))
        built = gang(name).of(1).created(number)
        scenario.change(gangs=[built.gang_facts()], pods=[replace(pod, class_id=name) for pod in built.pods()])
    scenario.add(gang("head").of(4).created(500))
    scenario.run_effects()
    return scenario


def steps_until_reserved(scenario: Scenario, seconds: float) -> list[int]:
    """Time passes to the moment at which the gangs starve. Returns how many classes each step then compared."""
    leader, ledger = scenario.leader, scenario.leader.cache.ledger
    step, compared = leader.step, list[int]()

    def counted(events: Sequence[Event], now: Now) -> list[Effect]:
        before = ledger.sums
        done = step(events, now)
        compared.append(ledger.sums - before)
        return done

    setattr(leader, "step", counted)  # noqa: B010
    scenario.now += seconds
    while not leader.cache.nominations:
        wake = leader.next_wake()
        assert wake is not None, "nothing is left to do, and no capacity is reserved"
        scenario.now = max(scenario.now, wake)
        scenario.tell(Tick())
        scenario.run_effects()
    return compared


def test_few_classes_are_compared_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = with_distinct_infeasible_gangs(20)
    monkeypatch.setattr(reservation, "MAX_CLASSES", 3)
    compared = steps_until_reserved(scenario, 31)
    assert max(compared) <= 2 * 3, "two requests may be considered in one step"
    assert sum(compared) >= 15
    (kept,) = scenario.leader.cache.nominations.values()
    assert kept.owner == "test/default/head"


def test_few_starving_gangs_are_put_in_order_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = with_distinct_infeasible_gangs(20)
    monkeypatch.setattr(reservation, "MAX_SORTED", 2)
    assert len(steps_until_reserved(scenario, 31)) > 20 / 2 / 2
    (kept,) = scenario.leader.cache.nominations.values()
    assert kept.owner == "test/default/head"


@pytest.mark.parametrize("pods_at_once", [1, 3, 7])
def test_running_pods_are_collected_in_slices_with_the_same_outcome(
    monkeypatch: pytest.MonkeyPatch, pods_at_once: int
) -> None:
    outcomes, counts = [], []
    for at_once in (pods_at_once, 1000):
        monkeypatch.setattr(expected_completions, "PODS_AT_ONCE", at_once)
        scenario = Scenario({"n": 4, "m": 4, "k": 4})
        for number in range(6):
            scenario.add(gang(f"g{number}").of(2).running_for(100 + 50 * number))
        scenario.run()
        scenario.add(gang("head").of(6).created(5))
        scenario.run_effects()
        steps = steps_until_reserved(scenario, 31)
        (kept,) = scenario.leader.cache.nominations.values()
        outcomes.append((kept.leaving, kept.capacity))
        counts.append(len(steps))
    assert outcomes[0] == outcomes[1]
    assert counts[0] > counts[1]


def test_a_gang_that_is_deleted_while_pods_are_collected_gets_no_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_completions, "PODS_AT_ONCE", 1)
    scenario = Scenario({"n": 8})
    for number in range(8):
        scenario.add(gang(f"g{number}").of(1).running_for(100))
    scenario.run()
    heads = [gang("head").of(8).created(5), gang("next").of(8).created(6)]
    scenario.add(*heads)
    scenario.run_effects()
    scenario.now += 31
    scenario.tell(Tick())
    assert not scenario.leader.cache.nominations
    scenario.delete(heads[0])
    steps_until_reserved(scenario, 0)
    (kept,) = scenario.leader.cache.nominations.values()
    assert kept.owner == "test/default/next"


def test_deleted_gangs_leave_nothing_behind() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(2).running_for(1000))
    scenario.run()
    scenario.add(gang("head").of(4).created(1))
    scenario.pass_time(31)
    assert scenario.leader.cache.nominations
    waiting = [gang(f"w{number}").of(4).created(5 + number) for number in range(10)]
    scenario.add(*waiting)
    scenario.pass_time(31)
    starving = scenario.leader._backfill.starving
    assert len(starving._starving) == 11, "behind the one that has a reservation"
    for each in waiting:
        scenario.delete(each)
    scenario.run_effects()
    assert len(starving._starving) + len(starving._since) <= 1


def test_the_first_in_the_queue_gets_the_reservation_although_it_is_sorted_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservation, "MAX_SORTED", 1)
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(2).running_for(1000))
    scenario.run()
    scenario.add(gang("low").of(4).created(1), gang("high").of(4).created(5).with_priority(10).never_preempting())
    scenario.run_effects()
    steps_until_reserved(scenario, 31)
    (kept,) = scenario.leader.cache.nominations.values()
    assert kept.owner == "test/default/high"


def test_a_gang_that_starts_while_pods_are_collected_gets_no_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_completions, "PODS_AT_ONCE", 1)
    scenario = Scenario({"n": 8})
    for number in range(8):
        scenario.add(gang(f"g{number}").of(1).running_for(100))
    scenario.run()
    scenario.add(gang("head").of(8).created(5))
    scenario.run_effects()
    scenario.now += 31
    scenario.tell(Tick())
    scenario.change(nodes=[node("large", 8)])
    scenario.run_effects()
    assert scenario.bound("head") == 8
    scenario.add(gang("other").of(20).created(6))
    scenario.pass_time(40)
    assert not [solve for solve in scenario.solves if solve.potential_victims]


def behind_foreign_pods(gangs: int) -> Scenario:
    """Gangs, all different, that fit when pods of another scheduler have ended, of which nothing is expected."""
    scenario = Scenario({"n": 48})
    for number in range(12):
        scenario.intrude(plain_pod(f"foreign{number}", cpu=4), "n")
    scenario.add(*(gang(f"g{size:02}").of(size).created(size) for size in range(1, gangs + 1)))
    scenario.run_effects()
    return scenario


@pytest.mark.parametrize("leaving", [False, True], ids=["none runs", "one leaves for another gang"])
def test_that_there_are_no_pods_to_offer_is_found_once_for_all_gangs(
    monkeypatch: pytest.MonkeyPatch, *, leaving: bool
) -> None:
    monkeypatch.setattr(expected_completions, "PODS_AT_ONCE", 10)
    scenario = behind_foreign_pods(40)
    if leaving:
        scenario.graceful = True
        scenario.change(nodes=[node("m", 4)])  # the two smallest gangs start
        scenario.run_effects()
        scenario.add_pods(plain_pod("high", cpu=4, priority=1))
        scenario.run_effects()
        assert scenario.leader.cache.nominations
    scenario.now += 31
    steps = 0
    while (wake := scenario.leader.next_wake()) is not None and wake <= scenario.now:
        scenario.tell(Tick())
        scenario.run_effects()
        steps += 1
    waiting = [each.group for each in scenario.leader.cache.gangs.values() if each.pending and not each.plain]
    assert {group.verdicts[Verdict.RESERVATION] for group in waiting} == {reservation.NO_COMPLETIONS_HELP}
    assert steps <= 2 * (40 + 820) / 10, "gangs and pods are looked at once"


def test_a_starving_gang_without_pods_to_offer_leaves_its_own_to_the_next() -> None:
    scenario = Scenario({"n": 2})
    repaired = gang("repaired").of(2).running_for(1000)
    scenario.add(repaired)
    scenario.run()
    lost = repaired.pods()[0]
    scenario.change(remove_pods=[lost.uid])
    scenario.intrude(plain_pod("foreign", cpu=1), "n")
    scenario.add_pods(replace(lost, uid="again"))
    scenario.add(gang("next").of(1).created(5))
    scenario.pass_time(40)
    (kept,) = scenario.leader.cache.nominations.values()
    assert (kept.owner, len(kept.leaving)) == ("test/default/next", 1)
