"""Turns of preemption requests: of preemptors and starving gangs, and of namespaces (I13)."""

from collections import Counter
from dataclasses import replace as changed

from msgspec.structs import replace

from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Solve

SOLVE_SECONDS = 0.02


class Tenant:
    """Gangs that never fit, of which one is edited ten times a second, and a pod that they might preempt."""

    def __init__(self, scenario: Scenario, declared_priority: int | None = None) -> None:
        self._scenario, self._edits, self._next = scenario, 0, scenario.now
        gangs = [gang(f"f{number}", "a").of(6 + number, cpu=4).created(number) for number in range(20)]
        self._gangs = [changed(each, declared_priority=declared_priority) for each in gangs]
        pods = [pod for each in self._gangs for pod in each.pods()]
        scenario.change(gangs=[each.gang_facts() for each in self._gangs], pods=pods)

    def act(self) -> None:
        if self._scenario.now >= self._next:
            self._next += 0.1
            self._edits += 1
            edited = self._gangs[self._edits % len(self._gangs)]
            self._scenario.change(gangs=[replace(edited.gang_facts(), total=edited.size + self._edits)])


def busy() -> Scenario:
    """All nodes are full: with a gang of priority 5, one that ends after 300 s, and a pod of priority -10."""
    scenario = Scenario({**{f"n{number}": 4 for number in range(4)}, "t": 1, "q": 4})
    scenario.add(gang("v", "b").of(4, cpu=4).with_priority(5))
    scenario.add(gang("bait", "a").of(1).with_priority(-10))
    scenario.add(gang("other", "c").of(1).with_priority(5).running_for(300))
    scenario.run_effects()
    return scenario


def requests(scenario: Scenario, tenant: Tenant, seconds: float) -> Counter[str]:
    """Preemption requests by namespace in this time; each solve takes a while."""
    found, until = Counter[str](), scenario.now + seconds
    while scenario.now < until:
        tenant.act()
        if not scenario.under_way:
            scenario.now += 0.01
            scenario.wake()
            continue
        effect = scenario.under_way[0]
        if isinstance(effect, Solve):
            scenario.now += SOLVE_SECONDS
            if effect.potential_victims:
                found[effect.groups[0].id.split("/")[1]] += 1
        scenario.do(0)
    return found


def add(scenario: Scenario, built: CoreGang) -> None:
    scenario.change(gangs=[built.gang_facts()], pods=built.pods())


def test_i13_a_declared_priority_delays_no_preemptor_of_a_higher_admitted_one() -> None:
    scenario = busy()
    tenant = Tenant(scenario, declared_priority=1_000_000)
    add(scenario, gang("p", "b").of(2, cpu=4).with_priority(100).created(10**6))
    requests(scenario, tenant, 5)
    assert scenario.gang("p", "b").permitted


def test_i13_preemptors_of_one_namespace_leave_turns_to_another() -> None:
    """Their priority is higher, and the other preemptor younger."""
    scenario = busy()
    tenant = Tenant(scenario)
    scenario.change(pods=[replace(pod, priority=200) for pod in scenario.cluster.pods.values() if "/f" in pod.gang])
    add(scenario, gang("p", "b").of(2, cpu=4).with_priority(100).created(10**6))
    requests(scenario, tenant, 10)
    assert scenario.gang("p", "b").permitted


def test_i8_preemptors_leave_turns_to_starving_gangs() -> None:
    scenario = busy()
    tenant = Tenant(scenario)
    add(scenario, gang("big", "c").of(1, cpu=4).with_priority(5).created(10**6).never_preempting())
    found = requests(scenario, tenant, 40)
    assert found["a"] > 0
    assert [each.owner for each in scenario.leader.cache.nominations.values()] == [scenario.gang("big", "c").id]
