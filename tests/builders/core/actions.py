"""What scenarios about making room do again and again: fill a cluster, stop at an effect, let pods end, see who went.

scenario = full(gang("v").of(4), nodes={"n": 4})
scenario.add(gang("p").of(4).priority(10))
plan = until_planned(scenario)
...  # something happens before the plan is durable
scenario.run_effects()
end(scenario)
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from builders.core.objects import GangBuilder
from builders.core.scenario import Scenario, Under
from muster.coordinator.core.effects import Persist, Solve
from muster.coordinator.core.events import Solved
from muster.gangs.facts import PodFacts, PodPhase


def crowded(nodes: dict[str, int], **budgets: int) -> Scenario:
    """A cluster in which evicted pods take their time, with budgets ("default/<name>") that allow so many evictions."""
    scenario = Scenario(nodes)
    scenario.graceful = True
    for name, allowed in budgets.items():
        scenario.set_budget(f"default/{name}", allowed)
    return scenario


def full(*gangs: GangBuilder, nodes: dict[str, int]) -> Scenario:
    """These gangs run, and what is evicted takes its time."""
    scenario = crowded(nodes)
    scenario.add(*gangs)
    scenario.run_effects()
    for built in gangs:
        assert scenario.bound(built.name), f"{built.name} was to run"
    return scenario


# -- the moment at which something is under way


def until(scenario: Scenario, kind: type[Under], such: Callable[[Any], bool] = lambda _: True) -> Under:
    """Do what is under way, in order, until there is such an effect; it stays under way."""
    while True:
        for effect in scenario.under_way:
            if isinstance(effect, kind) and such(effect):
                return effect
        assert scenario.under_way, f"all is quiet, and there was no such {kind.__name__}"
        scenario.do(0)


def held_back(scenario: Scenario, kind: type[Under], such: Callable[[Any], bool] = lambda _: True) -> Under:
    """The same, but the effect is under way no more: it is the test's to do."""
    effect = until(scenario, kind, such)
    scenario.under_way.remove(effect)
    return effect


def asks_for_room(solve: Solve) -> bool:
    """It is asked who is to go."""
    return bool(solve.potential_victims)


def is_plan(persist: Persist) -> bool:
    """Victims are recorded."""
    return any(record.evicting for record in persist.puts)


def until_planned(scenario: Scenario) -> Persist:
    """Somebody is to be evicted, and that is not durable yet."""
    return until(scenario, Persist, is_plan)


def answered(scenario: Scenario, solve: Solve) -> Solved:
    """What placement says to this now."""
    return Solved(solve.solve_id, scenario.solver(solve))


# -- pods that end


def ends(scenario: Scenario, *uids: str) -> None:
    """These pods are done."""
    scenario.change(pods=[replace(scenario.cluster.pods[uid], phase=PodPhase.SUCCEEDED) for uid in uids])


def all_end(scenario: Scenario) -> None:
    """Whatever runs is done."""
    ends(scenario, *(pod.uid for pod in scenario.cluster.pods.values() if pod.seated))


def brought_back(built: GangBuilder) -> list[PodFacts]:
    """Pods that the gang's owner makes in the place of those that are gone."""
    return [replace(pod, uid=f"{pod.uid}/new") for pod in built.pods()]


def end(scenario: Scenario) -> None:
    """Pods that are being deleted are gone, and what follows from that is done."""
    scenario.finish_deletions()
    scenario.run_effects()


# -- what is to be seen


def evicted(scenario: Scenario) -> set[str]:
    """Names of the gangs of which pods are on their way out."""
    return {pod.gang.rsplit("/", 1)[-1] for pod in scenario.cluster.pods.values() if pod.deleting}


def pods_of(scenario: Scenario, name: str) -> list[PodFacts]:
    """The gang's pods as they are by now."""
    return [pod for pod in scenario.cluster.pods.values() if pod.gang.endswith(f"/{name}")]


def places(scenario: Scenario, names: Iterable[str]) -> dict[str, int]:
    """How many pods of each of these gangs are bound."""
    return {name: scenario.bound(name) for name in names}


def reservations(scenario: Scenario, names: Iterable[str]) -> dict[str, int]:
    """How many seats each of these gangs holds."""
    return {name: len(scenario.gang(name).seats) for name in names}
