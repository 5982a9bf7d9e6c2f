"""All that the console shows, in one copy: the feeds of rows, and what pages are made of. No I/O.

Rows of nodes are rendered after the changes, in slices, between which the event loop runs (I12).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.console.cluster import Cluster
from muster.console.feed import Feed
from muster.console.gangs import Gangs
from muster.console.records import HeldSeat, Preemption, Preemptions, Record, Withheld, namespace_of, withheld
from muster.gangs.facts import PODS, NodeFacts, Problem, Severity, TopologyTree
from muster.topology.trees import is_listed

SLICE: Final = 200
"""Rows that are rendered at a time."""
ASSUMED: Final = "Assumed: nobody submits anything else; running pods end as far as that is known."
HIDDEN: Final = "(in another namespace)"
"""In place of the name of a gang that a reader may not see."""

_MAX_GANGS: Final = 8
"""Gangs that the row of a node names."""
_OMITTED: Final = ("ephemeral-storage",)
_MAX_MESSAGE: Final = 2000


class Source(Struct):
    """A service that the console follows."""

    name: str
    connected: bool = False
    detail: str = "not connected yet"
    since_seconds: int = 0


class Forecast(Struct, frozen=True):
    """What the expected starts depend on, in words, and when they were found, seconds since 1970. `detail`: why there
    are none now. An unset time: there is no service that finds them, or it has not answered yet.
    """

    assumption: str = ""
    detail: str = ""
    seconds: int = 0

    def for_reader(self, namespaces: frozenset[str] | None) -> "Forecast":
        """What a reader with rights in these namespaces is sent; None: all. The number of running pods is for those
        alone who may read all.
        """
        return self if namespaces is None or not self.assumption else replace(self, assumption=ASSUMED)


class Totals(Struct):
    """Amounts by resource, and numbers of nodes."""

    allocatable: Counter[str] = msgspec.field(default_factory=Counter)
    used: Counter[str] = msgspec.field(default_factory=Counter)
    reserved: Counter[str] = msgspec.field(default_factory=Counter)
    nodes: int = 0
    usable: int = 0


class _Contribution(Struct, frozen=True):
    """What a node adds to the totals."""

    allocatable: dict[str, int]
    used: dict[str, int]
    reserved: dict[str, int]
    usable: bool


class State:
    """The state of one console."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called whenever a row or a source has changed."""
        self.on_change = on_change
        self.cluster = Cluster()
        self.nodes = Feed(on_change)
        self.trees = Feed(on_change)
        self.problems = Feed(on_change)
        self.preemption_rows = Feed(on_change)
        self.starts = Feed(on_change)
        """Expected starts of gangs that wait."""
        self.usage = Feed(on_change)
        """What pods of each namespace use, reserve and wait for."""
        self.expected: Mapping[str, Mapping[str, Any]] = {}
        """The same by gang."""
        self.forecast = Forecast()
        self.gangs = Gangs(Feed(on_change))
        self.preemptions = Preemptions()
        self.records: dict[str, Record] = {}
        """By gang."""
        self.records_read = False
        """`records` are those of a coordinator."""
        self.withheld = Withheld()
        self.totals = Totals()
        self.leader = ""
        self.sources = {name: Source(name) for name in ("coordinator", "cluster-state")}
        self._contributions: dict[str, _Contribution] = {}
        self._preemption_keys: dict[str, None] = {}

    @property
    def feeds(self) -> Mapping[str, Feed]:
        """The feeds by name."""
        return {
            "gangs": self.gangs.feed,
            "nodes": self.nodes,
            "trees": self.trees,
            "problems": self.problems,
            "preemptions": self.preemption_rows,
            "starts": self.starts,
            "usage": self.usage,
        }

    def connect(self, source: str, *, connected: bool, detail: str, now_seconds: int) -> None:
        """Note whether a source is followed."""
        entry = self.sources[source]
        if (entry.connected, entry.detail) != (connected, detail):
            self.sources[source] = Source(source, connected, detail, now_seconds)
            self.on_change()

    def lead(self, leader: str) -> None:
        """Note which replica of the coordinator leads; "": none."""
        if leader != self.leader:
            self.leader = leader
            self.on_change()

    def replace_cluster(self, cluster: Cluster) -> None:
        """A new snapshot is complete."""
        cluster.changed_nodes.update(dict.fromkeys(self.nodes.keys()))
        cluster.changed_gangs.update(dict.fromkeys(self.cluster.gangs))
        cluster.changed_problems.update(dict.fromkeys(self.cluster.pod_problems))
        cluster.changed_namespaces.update(dict.fromkeys(self.usage.keys()))
        cluster.trees_changed = True
        self.cluster = cluster

    def render(self) -> Iterator[None]:
        """Bring the rows up to date with the cluster; yields after each slice."""
        cluster = self.cluster
        if cluster.trees_changed:
            cluster.trees_changed = False
            self._render_trees()
        yield from self._sliced(cluster.changed_nodes, self._render_node)
        yield from self._sliced(cluster.changed_gangs, self._render_problems)
        yield from self._sliced(cluster.changed_problems, self._render_pod_problem)
        yield from self._sliced(cluster.changed_namespaces, self._render_usage)

    def use_records(self, records: dict[str, Record], held: list[HeldSeat], now_seconds: int) -> None:
        """Replace what is known of the coordinator's records."""
        self.records, self.records_read = records, True
        self.preemptions.update(records.values(), now_seconds)
        before = self.withheld
        self.withheld = withheld(records.values(), held, self.cluster)
        for node in before.nodes() | self.withheld.nodes():
            same = before.reserved.get(node) == self.withheld.reserved.get(node)
            if not same or before.nominated.get(node) != self.withheld.nominated.get(node):
                self.cluster.changed_nodes[node] = None
        reserved = before.reserved_by.keys() | self.withheld.reserved_by.keys()
        self.cluster.changed_namespaces.update(dict.fromkeys(sorted(reserved)))
        self._render_preemptions()

    def use_starts(self, rows: Mapping[str, Mapping[str, Any]], forecast: Forecast) -> None:
        """Replace the expected starts by gang."""
        self.forecast, self.expected = forecast, rows
        for id_ in set(self.starts.keys()) - rows.keys():
            self.starts.remove(id_)
        for id_, row in rows.items():
            self.starts.put(id_, namespace_of(id_), msgspec.json.encode(row))
        self.on_change()

    def miss_starts(self, detail: str) -> None:
        """There was no answer: the last expected starts stay."""
        self.forecast = replace(self.forecast, detail=detail)
        self.on_change()

    def may_see(self, gang: str, namespaces: frozenset[str] | None) -> bool:
        """Whether a reader with rights in these namespaces, None for all, may see a gang."""
        return namespaces is None or namespace_of(gang) in namespaces

    def _sliced(self, changed: dict[str, None], render: Callable[[str], None]) -> Iterator[None]:
        done = 0
        while changed:
            key = next(iter(changed))
            del changed[key]
            render(key)
            done += 1
            if done % SLICE == 0:
                yield

    def _render_node(self, name: str) -> None:
        node = self.cluster.nodes.get(name)
        self._add_up(name, node)
        if node is None:
            self.nodes.remove(name)
        else:
            self.nodes.put(name, "", msgspec.json.encode(node_row(node, self.cluster, self.withheld)))

    def _add_up(self, name: str, node: NodeFacts | None) -> None:
        before, totals = self._contributions.pop(name, None), self.totals
        if before is not None:
            totals.allocatable.subtract(before.allocatable)
            totals.used.subtract(before.used)
            totals.reserved.subtract(before.reserved)
            totals.nodes -= 1
            totals.usable -= before.usable
        if node is None:
            return
        now = self._contributions[name] = _Contribution(
            dict(node.allocatable),
            dict(self.cluster.used(name)),
            dict(self.withheld.reserved.get(name, ())),
            is_usable(node),
        )
        totals.allocatable.update(now.allocatable)
        totals.used.update(now.used)
        totals.reserved.update(now.reserved)
        totals.nodes += 1
        totals.usable += now.usable

    def _render_trees(self) -> None:
        for name in set(self.trees.keys()) - self.cluster.trees.keys():
            self.trees.remove(name)
            self.problems.remove(f"tree/{name}")
        for tree in self.cluster.trees.values():
            self.trees.put(tree.name, "", msgspec.json.encode(tree_row(tree)))
            definition = tree.definition
            namespace = definition.namespace if definition is not None else ""
            label = f"{definition.kind} {namespace}/{definition.name}" if definition is not None else "settings"
            self._put_problems(f"tree/{tree.name}", namespace, f"topology tree {tree.name}", label, tree.problems)

    def _render_usage(self, namespace: str) -> None:
        usage = self.cluster.usage.get(namespace)
        if usage is None:
            self.usage.remove(namespace)
            return
        content = {
            "namespace": namespace,
            "used": _amounts(usage.used),
            "reserved": _amounts(self.withheld.reserved_by.get(namespace, {})),
            "waiting": _amounts(usage.waiting),
            "used_pods": usage.used_pods,
            "waiting_pods": usage.waiting_pods,
        }
        self.usage.put(namespace, namespace, msgspec.json.encode(content))

    def _render_problems(self, id_: str) -> None:
        facts = self.cluster.gangs.get(id_)
        if facts is None:
            self.problems.remove(f"gang/{id_}")
            return
        definition = facts.definition
        label = f"{definition.kind} {definition.namespace}/{definition.name}" if definition is not None else "its pods"
        self._put_problems(f"gang/{id_}", facts.namespace, id_, label, facts.problems)

    def _render_pod_problem(self, uid: str) -> None:
        found = self.cluster.pod_problems.get(uid)
        if found is None:
            self.problems.remove(f"pod/{uid}")
            return
        pod, problem = found
        label = f"Pod {pod.namespace}/{pod.name}"
        self._put_problems(f"pod/{uid}", pod.namespace, pod.owner, label, (Problem(Severity.BLOCKING, problem),))

    def _put_problems(
        self, key: str, namespace: str, subject: str, declared_by: str, problems: tuple[Problem, ...]
    ) -> None:
        if not problems:
            self.problems.remove(key)
            return
        content = {
            "key": key,
            "namespace": namespace,
            "subject": subject,
            "declared_by": declared_by,
            "blocking": any(problem.severity is Severity.BLOCKING for problem in problems),
            "messages": [problem.message[:_MAX_MESSAGE] for problem in problems],
        }
        self.problems.put(key, namespace, msgspec.json.encode(content))

    def _render_preemptions(self) -> None:
        keys: dict[str, None] = {}
        for each in (*self.preemptions.over, *self.preemptions.current.values()):
            key = f"{each.victim} {each.preemptor} {each.seen_seconds}"
            keys[key] = None
            row = self._preemption_row(key, each)
            namespace = namespace_of(each.victim)
            redacted = row if namespace == namespace_of(each.preemptor) else {**row, "preemptor": HIDDEN}
            self.preemption_rows.put(key, namespace, msgspec.json.encode(row), msgspec.json.encode(redacted))
        for key in self._preemption_keys.keys() - keys.keys():
            self.preemption_rows.remove(key)
        self._preemption_keys = keys

    def _preemption_row(self, key: str, each: Preemption) -> dict[str, object]:
        victim, preemptor = self.gangs.get(each.victim), self.gangs.get(each.preemptor)
        return {
            "key": key,
            "victim": each.victim,
            "victim_priority": victim.priority if victim is not None else None,
            "preemptor": each.preemptor,
            "preemptor_priority": preemptor.priority if preemptor is not None else None,
            "pods": each.pods,
            "seen": each.seen_seconds,
            "borrowed": each.borrowed,
            "under_way": each.under_way,
        }


def _amounts(of: Mapping[str, int]) -> dict[str, int]:
    """Amounts that are shown; pods are counted by themselves."""
    return {name: amount for name, amount in sorted(of.items()) if amount and name not in (*_OMITTED, PODS)}


def is_usable(node: NodeFacts) -> bool:
    """New pods can be placed on the node: it is ready and not cordoned."""
    return node.ready and not node.unschedulable


def node_row(node: NodeFacts, cluster: Cluster, held: Withheld) -> dict[str, Any]:
    """The row of a node. `free` is negative where pods use more than the node has."""
    used = cluster.used(node.name)
    reserved: Mapping[str, int] = held.reserved.get(node.name, {})
    nominated: Mapping[str, int] = held.nominated.get(node.name, {})
    allocatable = {name: amount for name, amount in node.allocatable if name not in _OMITTED}
    counts = cluster.gang_counts(node.name)
    return {
        "name": node.name,
        "paths": cluster.paths_of(node),
        "allocatable": allocatable,
        "free": {name: amount - used[name] - reserved.get(name, 0) for name, amount in allocatable.items()},
        "reserved": {name: amount for name, amount in reserved.items() if name not in _OMITTED},
        "nominated": {name: amount for name, amount in nominated.items() if name not in _OMITTED},
        "ready": node.ready,
        "cordoned": node.unschedulable,
        "taints": len(node.taints),
        "gangs": sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_MAX_GANGS],
        "gang_count": len(counts),
        "pods": sum(counts.values()),
    }


def tree_row(tree: TopologyTree) -> dict[str, Any]:
    """The row of a tree."""
    return {
        "name": tree.name,
        "default": tree.default,
        "levels": [level.name for level in tree.levels],
        "listed": is_listed(tree),
        "problems": [problem.message[:_MAX_MESSAGE] for problem in tree.problems],
    }
