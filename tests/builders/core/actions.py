"""Recurring steps of preemption scenarios: fill a cluster, stop at an effect, end pods, list victims.

scenario = full(gang("v").of(4), nodes={"n": 4})
scenario.add(gang("p").of(4).with_priority(10))
plan = until_planned(scenario)
...  # something happens before the plan is durable
scenario.run_effects()
end(scenario)
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from builders.core.scenario import Scenario, Under
from builders.gangs.facts import CoreGang
from muster.coordinator.core.effects import Persist, Solve
from muster.coordinator.core.events import Rules, Solved
from muster.coordinator.core.machine import DEFAULTS
from muster.gangs.facts import PodFacts, PodPhase


def crowded(nodes: dict[str, int], *, rules: Rules = DEFAULTS, **budgets: int) -> Scenario:
    """A cluster in which evicted pods terminate slowly; `budgets`: allowed evictions of "default/<name>"."""
    scenario = Scenario(nodes, rules=rules)
    scenario.graceful = True
    for name, allowed in budgets.items():
        scenario.set_budget(f"default/{name}", allowed)
    return scenario


def full(*gangs: CoreGang, nodes: dict[str, int], rules: Rules = DEFAULTS) -> Scenario:
    """A cluster in which these gangs run, and evicted pods terminate slowly."""
    scenario = crowded(nodes, rules=rules)
    scenario.add(*gangs)
    scenario.run_effects()
    for built in gangs:
        assert scenario.bound(built.name), f"{built.name} was to run"
    return scenario


# -- the moment at which something is under way


def until(scenario: Scenario, kind: type[Under], such: Callable[[Any], bool] = lambda _: True) -> Under:
    """Carries out effects in order until there is such an effect, which remains in flight."""
    while True:
        for effect in scenario.under_way:
            if isinstance(effect, kind) and such(effect):
                return effect
        assert scenario.under_way, f"all is quiet, and there was no such {kind.__name__}"
        scenario.do(0)


def held_back(scenario: Scenario, kind: type[Under], such: Callable[[Any], bool] = lambda _: True) -> Under:
    """As `until`, but removes the effect: the test carries it out."""
    effect = until(scenario, kind, such)
    scenario.under_way.remove(effect)
    return effect


def asks_for_room(solve: Solve) -> bool:
    """Whether the solve searches victims."""
    return bool(solve.potential_victims)


def is_plan(persist: Persist) -> bool:
    """Whether victims are recorded."""
    return any(record.evicting for record in persist.puts)


def until_planned(scenario: Scenario) -> Persist:
    """Runs until a plan is to be written."""
    return until(scenario, Persist, is_plan)


def answered(scenario: Scenario, solve: Solve) -> Solved:
    """Placement's answer to this solve now."""
    return Solved(solve.solve_id, scenario.solver(solve))


# -- pods that end


def ends(scenario: Scenario, *uids: str) -> None:
    """Lets pods succeed."""
    scenario.change(pods=[replace(scenario.cluster.pods[uid], phase=PodPhase.SUCCEEDED) for uid in uids])


def all_end(scenario: Scenario) -> None:
    """All running pods succeed."""
    ends(scenario, *(pod.uid for pod in scenario.cluster.pods.values() if pod.seated))


def brought_back(built: CoreGang) -> list[PodFacts]:
    """Pods that the gang's owner creates as replacements."""
    return [replace(pod, uid=f"{pod.uid}/new") for pod in built.pods()]


def end(scenario: Scenario) -> None:
    """Terminating pods are removed, and all effects carried out."""
    scenario.finish_deletions()
    scenario.run_effects()


# -- what is to be seen


def evicted(scenario: Scenario) -> set[str]:
    """Names of the gangs with terminating pods."""
    return {pod.gang.rsplit("/", 1)[-1] for pod in scenario.cluster.pods.values() if pod.deleting}


def pods_of(scenario: Scenario, name: str) -> list[PodFacts]:
    """The gang's current pods."""
    return [pod for pod in scenario.cluster.pods.values() if pod.gang.endswith(f"/{name}")]


def places(scenario: Scenario, names: Iterable[str]) -> dict[str, int]:
    """Number of bound pods of each of these gangs."""
    return {name: scenario.bound(name) for name in names}


def reservations(scenario: Scenario, names: Iterable[str]) -> dict[str, int]:
    """Number of seats of each of these gangs."""
    return {name: len(scenario.gang(name).seats) for name in names}
