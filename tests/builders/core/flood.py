"""A namespace with thousands of pending gangs, and the number of solve requests until a gang elsewhere starts."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from builders.core.scenario import Scenario
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Delta
from muster.gangs.facts import Batch, GangFacts, PodClass, PodFacts
from muster.gangs.solve import Explanation, SolveOutcome, SolveResult


@dataclass(frozen=True)
class Flood:
    """Gangs of one namespace; `distinct`: no two of them have equal pods, so that no equivalence class helps."""

    gangs: int = 20_000
    namespace: str = "flood"
    members: int = 2
    priority: int = 0
    cpu: int = 3
    created: int = 0
    distinct: bool = True

    def batch(self) -> Batch:
        classes: dict[str, PodClass] = {}
        gangs, pods = [], []
        for number in range(self.gangs):
            name = f"f{number}"
            milli_cpu = self.cpu * 1000 + (number if self.distinct else 0)
            class_id = f"{self.namespace}-{milli_cpu}"
            classes[class_id] = PodClass(class_id, (("cpu", milli_cpu), ("pods", 1)))
            facts = GangFacts(f"test/{self.namespace}/{name}", "test", self.namespace, name, minimum=self.members)
            facts = replace(facts, total=self.members, created_seconds=self.created + number)
            gangs.append(facts)
            pods += [
                PodFacts(
                    f"{self.namespace}/{name}-{index}",
                    self.namespace,
                    f"{name}-{index}",
                    class_id,
                    gang=facts.id,
                    priority=self.priority,
                    created_seconds=self.created + number,
                )
                for index in range(self.members)
            ]
        return Batch(pod_classes=tuple(classes.values()), gangs=tuple(gangs), pods=tuple(pods))


def create(scenario: Scenario, batch: Batch) -> None:
    """The objects are created at once."""
    scenario.cluster.classes.update((each.id, each) for each in batch.pod_classes)
    scenario.cluster.gangs.update((each.id, each) for each in batch.gangs)
    for pod in batch.pods:
        scenario.cluster.put_pod(pod)
    scenario.tell(Delta(batch))


def only_elsewhere(scenario: Scenario, namespace: str = "flood") -> Callable[[Solve], tuple[SolveResult, ...]]:
    """A solver that finds places for groups of other namespaces only."""

    def solve(asked: Solve) -> tuple[SolveResult, ...]:
        scenario.now += 0.05
        elsewhere = tuple(group for group in asked.groups if f"/{namespace}/" not in group.id)
        found = {result.id: result for result in scenario.first_fit(replace(asked, groups=elsewhere))}
        why = Explanation("0/1 nodes are available")
        none = (SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=why) for group in asked.groups)
        return tuple(found.get(result.id, result) for result in none)

    return solve


def solves_until(scenario: Scenario, done: Callable[[], bool], most: int = 1000) -> int:
    """Carries out effects until it is done; returns how many solve requests were answered meanwhile. Searches for
    victims, which alternate with them, are not counted.
    """
    answered = 0
    while not done():
        if not scenario.under_way:
            wake = scenario.leader.next_wake()
            assert wake is not None, "the coordinator waits for nothing"
            scenario.now = max(scenario.now, wake)
            scenario.wake()
            continue
        effect = scenario.under_way[0]
        answered += isinstance(effect, Solve) and not effect.potential_victims
        assert answered <= most, f"not done after {most} solve requests"
        scenario.do(0)
    return answered


def namespaces_of(solve: Solve) -> Counter[str]:
    """Groups of a request by namespace."""
    return Counter(group.id.split("/")[1] for group in solve.groups)
