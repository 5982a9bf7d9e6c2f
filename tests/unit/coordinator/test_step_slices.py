"""Work in thousands of gangs for one event, or as time passes, is done in slices of a step (I12)."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from builders.core.objects import pod_class
from builders.core.scenario import Scenario
from builders.core.slices import slices_of
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core import machine, reconcile
from muster.coordinator.core.effects import Bind, Report, Solve
from muster.coordinator.core.events import (
    BindOutcome,
    BindResult,
    BindResults,
    Delta,
    Recovered,
    Replicas,
    Snapshot,
    Solved,
    Tick,
)
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.gang.state import ActionState
from muster.coordinator.core.hold import hold_and_wait
from muster.coordinator.core.permits import binding, permits
from muster.coordinator.core.permits.binding import CONFIRMATION_SECONDS
from muster.coordinator.core.preemption import eviction, plan, potential_victims, repair
from muster.coordinator.core.queue import turns
from muster.coordinator.core.report import reports
from muster.coordinator.core.solve.request import equivalence_key, to_place
from muster.gangs.facts import Batch, RepairPolicy
from muster.gangs.solve import SolveOutcome, SolveResult

AT_ONCE = 5
GANGS = 40
MODULES: tuple[ModuleType, ...] = (
    machine,
    hold_and_wait,
    binding,
    permits,
    eviction,
    repair,
    plan,
    potential_victims,
    turns,
    reports,
)


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        for limit in ("OBJECTS", "GANGS", "OFFERS"):
            monkeypatch.setattr(module, limit, AT_ONCE, raising=False)


def singles(count: int = GANGS) -> list[CoreGang]:
    return [gang(f"g{number:03}").of(1).created(number) for number in range(count)]


def until_binds(scenario: Scenario) -> None:
    """Carries out everything but binds, until all gangs have a permit."""
    while len(scenario.etcd) < GANGS or not all(isinstance(effect, Bind) for effect in scenario.under_way):
        scenario.do(next(index for index, each in enumerate(scenario.under_way) if not isinstance(each, Bind)))


def seats(scenario: Scenario, state: ActionState) -> int:
    """Number of seats in this state."""
    gangs = scenario.leader.cache.gangs.values()
    return sum(held.state is state for gang in gangs for held in gang.seats.values())


def test_few_stale_representatives_leave_in_one_slice() -> None:
    scenario = Scenario({"n": 1})
    scenario.add(gang("first").of(2).created(0), *singles())
    leader = scenario.leader
    for group in list(leader.cache.groups.values()):
        if group in leader.queue:
            cache = leader.cache
            request = to_place(group, cache.ledger, cache.trees, cache.gangs)
            leader.queue.classify(group, equivalence_key(group, request))
            leader.queue.activate(group)
    solve = scenario.only(Solve)
    results = tuple(SolveResult(group.id, SolveOutcome.INFEASIBLE) for group in solve.groups)
    left, effects = slices_of(scenario, Solved(solve.solve_id, results), lambda: -len(leader.queue._active))
    assert sum(left) >= GANGS - len(solve.groups) - AT_ONCE
    assert max(left) <= AT_ONCE
    assert [effect for effect in effects if isinstance(effect, Solve)]


def test_few_gangs_of_gang_groups_are_checked_in_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "GANGS", AT_ONCE)
    names = [[f"g{group}-{number}" for number in range(4)] for group in range(10)]
    scenario = Scenario({"n": 1})
    groups = [[f"default/{name}" for name in each] for each in names]
    scenario.add(*(gang(name).of(2).with_group(*groups[at]) for at, each in enumerate(names) for name in each))
    scenario.run_effects()
    assert {len(group.gangs) for group in scenario.leader.cache.groups.values()} == {4}
    cache, checked = scenario.leader.cache, list[int]()
    check = cache.check_readiness

    def count(group: Group) -> None:
        checked.append(len(group.gangs))
        check(group)

    monkeypatch.setattr(cache, "check_readiness", count)
    edited = Batch(gangs=tuple(replace(facts, total=9) for facts in scenario.cluster.gangs.values()))
    in_slices, _ = slices_of(scenario, Delta(edited), lambda: sum(checked))
    assert sum(in_slices) >= GANGS
    assert max(in_slices) < AT_ONCE + 4


def test_few_gangs_are_recovered_in_one_slice() -> None:
    scenario = Scenario({"n": GANGS})
    scenario.add(*singles())
    until_binds(scenario)
    records, whole = tuple(scenario.etcd.values()), scenario.cluster.whole()
    scenario.crash()
    scenario.machine = machine.Machine(scenario.rules)
    slices_of(scenario, Recovered(records), lambda: 0)
    slices_of(scenario, Replicas(1), lambda: 0)
    reserved = scenario.leader.cache.ledger.reserved
    counts, effects = slices_of(scenario, Snapshot(whole), lambda: len(reserved))
    assert sum(counts) == GANGS
    assert max(counts) <= AT_ONCE
    assert sum(len(effect.seats) for effect in effects if isinstance(effect, Bind)) == GANGS


def test_few_lost_binds_are_given_up_in_one_slice() -> None:
    scenario = Scenario({"n": GANGS})
    scenario.add(*singles())
    backup = scenario.cluster.copy()
    scenario.run()
    scenario.restore(backup)
    scenario.now += CONFIRMATION_SECONDS
    gangs = scenario.leader.cache.gangs.values()
    given_up, _ = slices_of(scenario, Tick(), lambda: -sum(len(gang.acknowledged) for gang in gangs))
    assert sum(given_up) == GANGS
    assert max(given_up) <= AT_ONCE


def test_few_gangs_are_bound_again_in_one_slice() -> None:
    scenario = Scenario({"n": GANGS})
    scenario.add(*singles())
    until_binds(scenario)
    while scenario.under_way:
        scenario.break_call(0)
    scenario.now += 10
    sent, _ = slices_of(scenario, Tick(), lambda: seats(scenario, ActionState.SENT))
    assert sum(sent) == GANGS
    assert max(sent) <= AT_ONCE


def test_few_failed_binds_are_placed_again_in_one_slice() -> None:
    scenario = Scenario({"n": GANGS})
    scenario.add(gang("large").of(GANGS))
    scenario.do(0)  # the solve
    scenario.do(0)  # the permit
    uids = [seat.uid for seat in scenario.only(Bind).seats]
    failed = BindResults(tuple(BindResult(uid, BindOutcome.GONE) for uid in uids))
    reserved = scenario.leader.cache.ledger.reserved
    released, _ = slices_of(scenario, failed, lambda: -len(reserved))
    assert sum(released) == GANGS
    assert max(released) <= AT_ONCE


def test_few_held_seats_are_released_in_one_slice() -> None:
    scenario = Scenario({"n": GANGS})
    scenario.add(gang("waits").of(GANGS + 1).non_strict())
    scenario.run()
    reserved = scenario.leader.cache.ledger.reserved
    assert len(reserved) == GANGS
    cordoned = replace(scenario.cluster.nodes["n"], unschedulable=True)
    released, _ = slices_of(scenario, Delta(Batch(nodes=(cordoned,))), lambda: -len(reserved))
    assert sum(released) == GANGS
    assert max(released) <= AT_ONCE


def test_few_gangs_are_reported_in_one_slice() -> None:
    scenario = Scenario({"n": 1})
    # No two are equal: those of one class are explained one after the other.
    scenario.add(*(gang(f"g{number:03}").of(2).running_for(number + 1).created(number) for number in range(GANGS)))
    scenario.run_effects()
    scenario.now += 10
    own = scenario.leader._reports
    assert isinstance(own, reports.Reports)
    due = own._due
    assert len(due) == GANGS
    reported, effects = slices_of(scenario, Tick(), lambda: -len(due))
    assert sum(reported) == GANGS
    assert max(reported) <= AT_ONCE
    assert sum(isinstance(effect, Report) for effect in effects) == GANGS


def test_few_waits_time_out_in_one_slice() -> None:
    scenario = Scenario({f"n{number}": 1 for number in range(GANGS)})
    scenario.add(*(gang(f"g{number:03}").of(1).and_of(1, cpu=2).non_strict(60) for number in range(GANGS)))
    scenario.run()
    holds, reserved = scenario.leader._holds, scenario.leader.cache.ledger.reserved
    assert len(holds.groups) == len(reserved) == GANGS
    assert holds.next_time() == pytest.approx(scenario.now + 60, abs=1)
    scenario.now += 61
    ended, _ = slices_of(scenario, Tick(), lambda: -len(reserved))
    assert sum(ended) == GANGS
    assert max(ended) <= AT_ONCE
    assert holds.next_time() is None


def test_few_repairs_time_out_in_one_slice() -> None:
    scenario = Scenario({"n": 2 * GANGS})
    gangs = [gang(f"g{number:03}").of(2).with_repair_policy(RepairPolicy.EVICT) for number in range(GANGS)]
    scenario.add(*gangs)
    scenario.run()
    large = pod_class(3 * GANGS)
    replaced = [each.pods()[0] for each in gangs]
    others = [replace(pod, uid=f"{pod.uid}-new", class_id=large.id) for pod in replaced]
    scenario.change(classes=[large], pods=others, remove_pods=[pod.uid for pod in replaced])
    scenario.run()
    scenario.now += scenario.rules.repair_timeout_seconds + 1
    evicted = scenario.leader.cache.gangs.values()
    given_up, _ = slices_of(scenario, Tick(), lambda: sum(each.eviction.whole for each in evicted))
    assert sum(given_up) == GANGS
    assert max(given_up) <= AT_ONCE


@pytest.mark.parametrize("gangs", [singles(), [each.in_subgroups(1, minimum=1, rack=False) for each in singles()]])
def test_few_running_gangs_are_listed_as_potential_victims_in_one_slice(
    gangs: list[CoreGang], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario({"n": GANGS})
    scenario.add(*gangs)
    scenario.run()
    scenario.add(gang("first").of(1).with_priority(100).created(GANGS))
    running, read = scenario.leader._preemption.running, list[str]()
    offer, split = running.offer, running.split

    def read_by(list_pods: Callable[[Gang], Any]) -> Callable[[Gang], Any]:
        def listed(each: Gang) -> Any:
            read.append(each.id)
            return list_pods(each)

        return listed

    monkeypatch.setattr(running, "offer", read_by(offer))
    monkeypatch.setattr(running, "split", read_by(split))
    solve = scenario.only(Solve)
    results = tuple(SolveResult(group.id, SolveOutcome.INFEASIBLE) for group in solve.groups)
    in_slices, effects = slices_of(scenario, Solved(solve.solve_id, results), lambda: len(read))
    [search] = [effect for effect in effects if isinstance(effect, Solve)]
    assert len(search.potential_victims) == GANGS
    assert sum(in_slices) >= GANGS
    assert max(in_slices) <= AT_ONCE
