"""A cluster with users, other schedulers and services in which acts happen, watched at every step."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from builders.core.objects import GangBuilder
from builders.core.scenario import Scenario
from muster.coordinator.core.effects import Bind, Effect, Evict, MarkTimedOut, Persist
from muster.coordinator.core.events import Event, EvictOutcome, EvictResult, PodName, Tick
from muster.gangs.facts import PodFacts
from simulation.oracle import Watch

SLOTS = "abcdef"
"""Names of the gangs that may exist; a gang's slot is its place here."""
GROUPINGS = ("ab", "cd", "ef", "abc", "def", "bc")
"""Which of them may declare each other as their group."""
THEIRS = "theirs"
"""A node that is closed to us, on which other schedulers put pods."""
MOST_EFFECTS = 3000
"""More in a row, with nothing else happening, is a coordinator that spins."""
_IN_ORDER = (Persist, MarkTimedOut)

Listener = Callable[[Scenario, Event | Effect], None]
"""Hears what the coordinator is told and what it wants."""


class ObservedScenario(Scenario):
    """A scenario of which every step is looked at."""

    def __init__(self, nodes: dict[str, int], watch: Watch, listen: Listener | None = None) -> None:
        self.watch = watch
        self.listen = listen
        self.steps = 0
        self.effects = 0
        super().__init__(nodes)

    def change(self, **changes: Any) -> None:
        """What happened before is seen before."""
        lagging, self.lagging = self.lagging, self.lagging or bool(self.stream)
        super().change(**changes)
        self.lagging = lagging

    def tell(self, *events: Event) -> None:
        if self.listen is not None:
            for event in events:
                self.listen(self, event)
        self.steps += 1
        effects = self.effects
        super().tell(*events)
        if self.machine is not None:
            idle = effects == self.effects and all(isinstance(event, Tick) for event in events)
            self.watch.stepped(self, self.machine, idle=idle)

    def take(self, effect: Effect) -> None:
        self.effects += 1
        if self.listen is not None:
            self.listen(self, effect)
        self.watch.took(self, effect)
        super().take(effect)

    def evict(self, name: PodName) -> EvictResult:
        pod = self.cluster.pods.get(name.uid)
        result = super().evict(name)
        if pod is not None and result.outcome is not EvictOutcome.GONE:
            self.watch.harmed(self, pod, refused=result.outcome is EvictOutcome.FAILED)
        return result

    def run_effects(self, most: int = MOST_EFFECTS) -> None:
        super().run_effects(most)


class World:
    """One scenario, and what its users remember."""

    def __init__(self, listen: Listener | None = None) -> None:
        self.watch = Watch()
        self.scenario = ObservedScenario({"n0": 4, "n1": 3}, self.watch, listen)
        self.gangs: dict[int, GangBuilder] = {}
        """What is declared, or was, by slot."""
        self.old: list[Effect] = []
        """Sent to binding by leaders of the past, and still on its way."""
        self._count = 0

    # -- what users do

    def number(self) -> int:
        """Never the same twice."""
        self._count += 1
        return self._count

    def declare(self, slot: int, built: GangBuilder) -> None:
        """A user declares a gang, or changes what is declared."""
        self.gangs[slot] = built
        self.scenario.change(gangs=[built.gang_facts()])

    def create_pods(self, slot: int, most: int) -> None:
        """A controller makes pods that are missing."""
        built = self.gangs[slot]
        there = {(pod.gang, pod.name) for pod in self.scenario.cluster.pods.values()}
        missing = [pod for pod in built.pods() if (pod.gang, pod.name) not in there]
        if missing and most:
            self.scenario.change(pods=[self.anew(pod) for pod in missing[:most]])

    def change_pods(self, *pods: PodFacts) -> None:
        """Somebody changes pods."""
        self.scenario.change(pods=list(pods))

    def remove_pods(self, *pods: PodFacts) -> None:
        """Somebody deletes pods; they are gone at once."""
        if pods:
            self.scenario.change(remove_pods=[pod.uid for pod in pods])

    def anew(self, pod: PodFacts) -> PodFacts:
        """No two pods ever have the same uid."""
        return replace(pod, uid=f"{pod.uid}#{self.number()}")

    # -- what there is

    def standing(self) -> tuple[object, ...]:
        """Differs before and after an act that did something."""
        scenario = self.scenario
        failures = (scenario.bind_failures.total(), scenario.evict_failures.total())
        waits = (len(scenario.under_way), len(scenario.stream), len(self.old))
        clocks = (scenario.now, scenario.unix_ahead)
        return (
            *failures,
            *waits,
            *clocks,
            scenario.lagging,
            scenario.graceful,
            scenario.steps,
            self._count,
            len(self.gangs),
        )

    def pod(self, which: int, *, bound: bool | None = None) -> PodFacts | None:
        """One of the pods that are there; if said so, one of those that are bound, or are not."""
        there = self.scenario.cluster.pods.values()
        pods = sorted((pod for pod in there if bound in (None, bool(pod.node))), key=lambda pod: pod.uid)
        return pods[which % len(pods)] if pods else None

    def pods_of(self, slot: int) -> list[PodFacts]:
        """Pods of a slot's gang."""
        built = self.gangs.get(slot)
        return [pod for pod in self.scenario.cluster.pods.values() if built is not None and pod.gang == built.id]

    def node(self, which: int) -> str | None:
        """One of the nodes that are open to us."""
        names = sorted(self.scenario.cluster.nodes.keys() - {THEIRS})
        return names[which % len(names)] if names else None

    def share(self, *nodes: str) -> None:
        """Others put more on these nodes than they say: there I3 is not ours to keep, until it holds again."""
        self.scenario.shared_nodes.update(nodes or self.scenario.cluster.nodes)

    # -- what services do

    def choices(self) -> list[int]:
        """What may be done next; writes to etcd stay in order, and marks do."""
        under_way = self.scenario.under_way
        first = [next((i for i, each in enumerate(under_way) if isinstance(each, kind)), -1) for kind in _IN_ORDER]
        return [i for i, each in enumerate(under_way) if i in first or not isinstance(each, _IN_ORDER)]

    def do(self, index: int) -> None:
        """Do one of the things under way. Binding stops what earlier leaders sent when a later one calls."""
        if isinstance(self.scenario.under_way[index], Bind | Evict | MarkTimedOut):
            self.old.clear()
        self.scenario.do(index)

    def run(self) -> None:
        """All is seen and done at once."""
        self.old.clear()
        self.scenario.deliver()
        while self.scenario.under_way or self.scenario.stream:
            self.scenario.run_effects()
            self.scenario.deliver()

    def pass_time(self, seconds: float) -> None:
        """Time passes; the coordinator is woken when it asks for it, but nobody does anything for it."""
        scenario = self.scenario
        end, at, wakes = scenario.now + seconds, -1.0, 0
        while (wake := scenario.leader.next_wake()) is not None and wake <= end:
            wakes = wakes + 1 if wake <= at else 0
            assert wakes < 10, f"it asks again and again to be woken at {wake}"
            at = wake
            scenario.now = max(scenario.now, wake)
            scenario.tell(Tick())
        scenario.now = end
        scenario.tell(Tick())

    def calm(self, seconds: float) -> None:
        """Time passes, and everybody does their part at once."""
        self.run()
        lagging, self.scenario.lagging = self.scenario.lagging, False
        self.scenario.pass_time(seconds)
        self.scenario.lagging = lagging
