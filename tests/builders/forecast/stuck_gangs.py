"""A stuck gang: manifests of a cluster, played with the coordinator's machine and a real placement; what is said of the
gang, and whether it starts after the cluster was changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import replace

from muster.clusterstate.suite import facts_of
from muster.coordinator.core.effects import Phase, Report
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.report.explain import would_help
from muster.coordinator.core.report.reasons import reason
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.player import Happening, Player, Solver
from muster.forecast.rules import rules_of
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch, TopologyTree

Manifest = dict[str, Any]
BEGIN: Final = 1_700_000_000.0
SETTLED_SECONDS: Final = 30.0
"""Time in which every gang has been tried, also for preemption, and its reason reported."""
STARTED_SECONDS: Final = 300.0
KEYS: Final = {"nodes": "name", "pods": "uid", "gangs": "id", "budgets": "id", "trees": "name"}


class StuckGang:
    """The gang "a" in a cluster of its own. `solver` follows `stream`."""

    def __init__(self, stream: ClusterStream, solver: Solver, manifests: Sequence[Manifest], *trees: TopologyTree):
        self._stream, self._solver, self._trees = stream, solver, trees
        self._before = self._facts(manifests)
        self._conditions: dict[str, str] = {}

    async def said(self) -> tuple[str, list[str], str]:
        """The reason, what would help, and the message of the conditions, once the gang has settled."""
        cluster = await self._stream.copy_of(self._before)
        self._player = Player(
            cluster,
            self._solver,
            rules=rules_of({}),
            now=BEGIN,
            on_change=self._stream.change,
            observe=self._observe,
            run_seconds=attrgetter("expected_seconds"),
        )
        self._stream.begin(cluster)
        await self._player.begin()
        await self._advance(SETTLED_SECONDS)
        assert self.gang.phase is not Phase.SATISFIED, "it is not stuck"
        condition = next((self._conditions[uid] for uid in self.gang.pending if uid in self._conditions), "")
        return reason(self.gang), would_help(self.gang), condition

    async def starts_with(self, manifests: Sequence[Manifest], *trees: TopologyTree) -> bool:
        """Change the cluster to these manifests; True: the gang starts."""
        self._trees = trees or self._trees
        after = self._facts(manifests)
        await self._player.change(_removed(self._before, after), after)
        await self._advance(STARTED_SECONDS)
        return self.gang.phase is Phase.SATISFIED

    @property
    def gang(self) -> Gang:
        """The gang."""
        (found,) = (gang for gang in self._player.machine.cache.gangs.values() if gang.id.endswith("/a"))
        return found

    def _facts(self, manifests: Sequence[Manifest]) -> Batch:
        facts = facts_of(manifests, ("muster",))
        return replace(facts, trees=self._trees or facts.trees)

    async def _advance(self, seconds: float) -> None:
        end = self._player.now + seconds
        while await self._player.advance(end):
            pass
        self._player.now = end

    def _observe(self, _now: float, happening: Happening) -> None:
        if isinstance(happening, Report):
            self._conditions.update((each.uid, each.message) for each in happening.conditions)


def _removed(before: Batch, after: Batch) -> Batch:
    """The removal of all facts that are in `before` only."""
    gone: dict[str, Any] = {
        f"removed_{kind}": tuple(_keys(getattr(before, kind), key) - _keys(getattr(after, kind), key))
        for kind, key in KEYS.items()
    }
    return Batch(**gone)


def _keys(facts: Iterable[Any], key: str) -> set[str]:
    return set(map(attrgetter(key), facts))


# -- manifests


def node(name: str, cpu: int, *, taints: Mapping[str, str] | None = None, **changes: Any) -> Manifest:
    """A node that is ready. `taints`: values by key, with effect NoSchedule; `labels`, `unschedulable`, `ready`, and
    `allocatable` are further changes.
    """
    allocatable = {"cpu": str(cpu), "pods": "110", **changes.get("allocatable", {})}
    ready = "True" if changes.get("ready", True) else "False"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **changes.get("labels", {})}},
        "spec": {
            "unschedulable": changes.get("unschedulable", False),
            "taints": [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in (taints or {}).items()],
        },
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }


def with_priority(pods: Iterable[Manifest], priority: int, **spec: Any) -> list[Manifest]:
    """The pods with a priority, as admission gives it to them."""
    return [{**pod, "spec": {**_without_class(pod["spec"]), "priority": priority, **spec}} for pod in pods]


def running(pods: Iterable[Manifest], *nodes: str) -> Iterator[Manifest]:
    """The pods run on these nodes, in turn."""
    for number, pod in enumerate(pods):
        spec = {**pod["spec"], "nodeName": nodes[number % len(nodes)]}
        yield {**pod, "spec": spec, "status": {"phase": "Running"}}


def budget(name: str, allowed: int, **labels: str) -> Manifest:
    """A PodDisruptionBudget of pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }


def _without_class(spec: Manifest) -> Manifest:
    return {key: value for key, value in spec.items() if key != "priorityClassName"}


def copied_cluster() -> ClusterStream:
    """A stream of an empty cluster."""
    return ClusterStream(VirtualCluster())
