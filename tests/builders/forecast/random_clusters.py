"""Random clusters with a past: gangs have started, waited, been preempted, and ended, so that the leader's memory has
what decides over the next ones. The same seed gives the same cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import Final

from msgspec.structs import replace

from builders.core.objects import node, plain_pod, pod_class, racks
from builders.gangs.facts import CoreGang, gang
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.player import Happening, Player, Solver
from muster.forecast.rules import rules_of
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch, DisruptionBudget, PodFacts

BEGIN: Final = 1_700_000_000.0
CLASSES: Final = tuple(pod_class(cpu) for cpu in range(1, 9))
_TOPOLOGIES: Final = ("", "", "", "", "rack: hard pack", "rack: pack")
_PRIORITIES: Final = (0, 0, 0, 5, 10)
_DURATIONS: Final = (0.0, 30.0, 120.0, 600.0, 600.0, 3000.0)


@dataclass
class RandomCluster:
    """One cluster, a leader with a past, and a gang that may be submitted next."""

    seed: int
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        names = [f"n{index}" for index in range(self._random.randint(2, 8))]
        self._nodes = [node(name, self._random.choice((4, 8, 8, 16))) for name in names]
        rack_size = self._random.choice((2, 3))
        in_racks = {
            f"r{at // rack_size}": " ".join(names[at : at + rack_size]) for at in range(0, len(names), rack_size)
        }
        self._trees = (racks(**in_racks),)
        self._budgets = (DisruptionBudget("default/some", self._random.randint(0, 2)),)
        self.settings = {
            "starvation-after-seconds": str(self._random.choice((5.0, 30.0, 120.0))),
            "reservation-timeout-seconds": str(self._random.choice((60.0, 600.0))),
            "evictions-per-hour": str(self._random.choice((0, 0, 0, 4, 60))),
            "max-reserved-share": str(self._random.choice((1.0, 1.0, 0.5))),
            "max-held-share": str(self._random.choice((1.0, 1.0, 0.6))),
            "growth-batch-seconds": str(self._random.choice((10.0, 60.0))),
        }
        self._number = 0

    async def leader(
        self, stream: ClusterStream, solver: Solver, revision: int, observe: "Observer", *, overruns: bool = False
    ) -> Player:
        """A leader after a random past. `revision`: the last one that the solver has seen; `overruns`: some pods run
        longer than they declare.
        """
        cluster = VirtualCluster(revision)
        cluster.apply(Batch(pod_classes=CLASSES, nodes=tuple(self._nodes), trees=self._trees, budgets=self._budgets))
        player = Player(
            cluster,
            solver,
            rules=rules_of(self.settings),
            now=BEGIN,
            on_change=stream.change,
            observe=observe,
            run_seconds=_run_seconds if overruns else attrgetter("expected_seconds"),
        )
        stream.begin(cluster)
        await player.begin()
        for _ in range(self._random.randint(2, 14)):
            await player.change(self._something(player))
            end = player.now + self._random.choice((0.0, 0.5, 3.0, 20.0, 100.0, 400.0))
            while await player.advance(end):
                pass
            player.now = end
        return player

    def question(self, now: float) -> Batch:
        """The gang that is asked about."""
        return facts(self._gang(now))

    def _something(self, player: Player) -> Batch:
        kind = self._random.random()
        running = [pod for pod in player.cluster.pods.values() if pod.seated]
        if kind < 0.08 and running:
            return Batch(removed_pods=(self._random.choice(running).uid,))
        if kind < 0.16:
            changed = self._random.choice(list(player.cluster.nodes.values()))
            return Batch(nodes=(replace(changed, unschedulable=not changed.unschedulable),))
        if kind < 0.24:
            return self._plain(player.now)
        if kind < 0.32:
            return self._group(player.now)
        return facts(self._gang(player.now))

    def _plain(self, now: float) -> Batch:
        """A single pod."""
        pod = plain_pod(f"p{self._number}", self._random.choice((1, 2)), self._random.choice(_PRIORITIES), int(now))
        self._number += 1
        return Batch(pods=(replace(pod, expected_seconds=self._random.choice(_DURATIONS)),))

    def _group(self, now: float) -> Batch:
        """Two gangs that start together."""
        pair = [self._gang(now) for _ in range(2)]
        names = [f"{each.namespace}/{each.name}" for each in pair]
        both = [facts(each.with_group(*names)) for each in pair]
        return Batch(gangs=both[0].gangs + both[1].gangs, pods=both[0].pods + both[1].pods)

    def _gang(self, now: float) -> CoreGang:
        random, number = self._random, self._number
        self._number += 1
        size = random.choice((1, 1, 2, 3, 4, 6, 8))
        made = gang(f"g{number}", random.choice(("default", "default", "other"))).of(size, cpu=random.choice((1, 2, 4)))
        if size > 1 and random.random() < 0.3:
            made = made.needing(random.randint(1, size))
        if size > 1 and random.random() < 0.2:
            made = made.and_of(1, cpu=random.choice((1, 4, 8)))
        if random.random() < 0.2:
            made = made.non_strict(random.choice((60.0, 600.0)))
        if topology := random.choice(_TOPOLOGIES):
            made = made.with_topology(topology)
        made = made.with_priority(random.choice(_PRIORITIES)).running_for(random.choice(_DURATIONS))
        if random.random() < 0.15:
            made = made.with_budget("default/some")
        if random.random() < 0.1:
            made = made.never_preempting()
        if random.random() < 0.1:
            made = made.evicted_as_a_whole()
        if random.random() < 0.1:
            made = made.needing_free_cpu(random.randint(1, 16))
        return made.created(int(now))


def _run_seconds(pod: PodFacts) -> float:
    return pod.expected_seconds * (10 if pod.name.startswith(("g1", "g2")) else 1)


Observer = Callable[[float, Happening], None]


def facts(made: CoreGang) -> Batch:
    """A gang and its pods."""
    return Batch(gangs=(made.gang_facts(),), pods=tuple(made.pods()))
