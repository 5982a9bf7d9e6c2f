"""Queueing hints: which unschedulable groups an event could help, so that only those are tried again.

The pod classes of a group, its topology tree and whether it may preempt determine what could help it (`WaitsFor`); a
hint per kind of event compares the event with that. Hints err on the side of waking: a group that fits never stays
unschedulable (I7). `Queue.wake` collects events, and `Queue.flush` evaluates the hints when groups are next tried, once
per distinct `WaitsFor`, not once per event and group. Decision 0042 in docs/decisions has the reasons.

Other ways out of the unschedulable or backoff part of the queue do not use hints:

- A change of a gang's own declaration or pods touches the gang; `reconcile.Reconciler._update_queue` then puts its
  group into the active queue (`queue.activate`).
- An attempt that failed, or whose answer could not be used, or only as far as `max-held-share` permits, is repeated
  after a backoff (`queue.back_off`).
- Slow groups, for which placement ran out of time, are parked until their turn (`queue.park`, `solve.slow`), and equal
  groups until their representative fits (`queue.settle`).
- Preemption repeats its own requests: after a failed answer, and when a potential victim was added
  (`preemption.preemption`). A preemptor becomes active when its victims are gone, and groups that released their
  reservations for it when it has started or failed (`preemption.plan`).
- A group whose reserved capacity was lent becomes active when only borrowers use it (`elastic.loans`).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.events import ClusterEvent, EventKind
from muster.coordinator.core.gang.gang import Group
from muster.coordinator.core.preemption.nomination import may_preempt
from muster.coordinator.core.slices import OBJECTS, Slices
from muster.gangs.capacity import Int64
from muster.gangs.facts import PodClass

MAX_NODES: Final = 500
"""Events on more nodes than this are taken to concern every node."""
MAX_EVALUATIONS: Final = 300
"""Comparisons of a pod class with all nodes for one round of hints, 0.1 ms each for 5,000 nodes; the rest is taken to
match.
"""


class WaitsFor(NamedTuple):
    """Conditions under which a group that has no place now could start."""

    classes: frozenset[str]
    """Classes of its pending members."""
    label_keys: frozenset[str]
    """Node labels that its node affinity, volumes, inter-pod rules and topology tree name."""
    inter_pod: bool
    """Pods elsewhere matter: by affinity, anti-affinity or spreading of its members, or of pods that select them."""
    selected: bool
    """Rules of other pods select its members; which labels those name is not known here."""
    tree: bool
    """Whether the group names a topology tree, or has constraints on one."""
    preempts: bool
    """Pods may be evicted for it."""


class EventLog:
    """Events since some moment, merged by kind: at most MAX_NODES nodes for each."""

    def __init__(self) -> None:
        self.nodes: dict[EventKind, set[str] | None] = {}
        """Nodes by kind; None: any node."""
        self.label_keys: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.nodes)

    def add(self, event: ClusterEvent) -> None:
        self._add_nodes(event.kind, event.nodes)
        self.label_keys.update(event.label_keys)

    def merge(self, other: "EventLog") -> None:
        for kind, nodes in other.nodes.items():
            if nodes is None:
                self.nodes[kind] = None
            else:
                self._add_nodes(kind, nodes)
        self.label_keys |= other.label_keys

    def _add_nodes(self, kind: EventKind, nodes: Iterable[str]) -> None:
        known = self.nodes.setdefault(kind, set())
        if known is not None:
            known.update(nodes)
            if len(known) > MAX_NODES:
                self.nodes[kind] = None


class _Round:
    """One evaluation of the hints."""

    def __init__(self, log: EventLog, ledger: Ledger) -> None:
        self.log = log
        self._ledger = ledger
        self._evaluations_before = ledger.eligible.evaluations
        self._rows: dict[EventKind, Int64] = {}
        self._known: dict[tuple[EventKind, str], bool] = {}

    def helps(self, waits: WaitsFor) -> bool:
        return any(HINTS[kind](self, kind, waits) for kind in self.log.nodes)

    def on_eligible_node(self, kind: EventKind, waits: WaitsFor) -> bool:
        """One of the nodes would take a pending member if it were empty."""
        nodes = self.log.nodes[kind]
        if nodes is None:
            return True
        if kind not in self._rows:
            self._rows[kind] = self._ledger.rows_of(nodes)
        return any(self._class_takes(kind, class_id) for class_id in waits.classes)

    def _class_takes(self, kind: EventKind, class_id: str) -> bool:
        known = self._known.get((kind, class_id))
        if known is None:
            eligible = self._ledger.eligible
            spent = eligible.evaluations - self._evaluations_before >= MAX_EVALUATIONS
            known = self._known[kind, class_id] = (spent and not eligible.knows(class_id)) or (
                self._ledger.could_take_one_of(self._rows[kind], class_id)
            )
        return known


Hint = Callable[[_Round, EventKind, WaitsFor], bool]


def _always(_round: _Round, _kind: EventKind, _waits: WaitsFor) -> bool:
    return True


def _eligible_node(round_: _Round, kind: EventKind, waits: WaitsFor) -> bool:
    return round_.on_eligible_node(kind, waits)


def _eligible_node_or_inter_pod(round_: _Round, kind: EventKind, waits: WaitsFor) -> bool:
    return waits.inter_pod or round_.on_eligible_node(kind, waits)


def _inter_pod(_round: _Round, _kind: EventKind, waits: WaitsFor) -> bool:
    return waits.inter_pod


def _names_label(round_: _Round, _kind: EventKind, waits: WaitsFor) -> bool:
    return waits.selected or not waits.label_keys.isdisjoint(round_.log.label_keys)


def _tree(_round: _Round, _kind: EventKind, waits: WaitsFor) -> bool:
    return waits.tree


def _preempts(_round: _Round, _kind: EventKind, waits: WaitsFor) -> bool:
    return waits.preempts


HINTS: Final[Mapping[EventKind, Hint]] = {
    EventKind.NODE_ADDED: _eligible_node_or_inter_pod,
    EventKind.NODE_REMOVED: _inter_pod,  # spreading: the emptiest domain may be gone
    EventKind.NODE_LABELS_CHANGED: _names_label,
    EventKind.NODE_TAINTS_CHANGED: _eligible_node_or_inter_pod,
    EventKind.NODE_SCHEDULABLE: _eligible_node_or_inter_pod,
    EventKind.NODE_ALLOCATABLE_INCREASED: _eligible_node,
    EventKind.CAPACITY_FREED: _eligible_node_or_inter_pod,
    EventKind.RESERVATION_RELEASED: _eligible_node_or_inter_pod,
    EventKind.ASSIGNMENT_UNUSED: _eligible_node_or_inter_pod,
    EventKind.POD_SCHEDULED: _inter_pod,
    EventKind.POD_BOUND_BY_OTHERS: _always,  # where capacity was assumed is not known
    EventKind.POD_PRIORITY_LOWERED: _always,
    EventKind.EVICTION_CANCELLED: _preempts,
    EventKind.BUDGET_INCREASED: _preempts,
    EventKind.NOMINATION_ENDED: _always,  # its victims and their nodes are of use to any group
    EventKind.TOPOLOGY_TREE_CHANGED: _tree,
}
"""Whether events of a kind could help a group."""


class WakeIndex:
    """Index of unschedulable groups and equivalence classes by the conditions that could help them: each as long as it
    is unschedulable.
    """

    def __init__(self, ledger: Ledger, trees: TopologyTrees) -> None:
        self._ledger, self._trees = ledger, trees
        self._waits: dict[Hashable, WaitsFor] = {}
        self._ids: dict[WaitsFor, dict[Hashable, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def add(self, id_: Hashable, group: Group) -> None:
        """The group, or all groups of its equivalence class, wait under this id; known ids are passed over."""
        if id_ not in self._waits:
            waits = self._waits[id_] = waits_for(group, self._ledger, self._trees)
            self._ids.setdefault(waits, {})[id_] = None

    def discard(self, id_: Hashable) -> None:
        waits = self._waits.pop(id_, None)
        if waits is not None:
            del self._ids[waits][id_]
            if not self._ids[waits]:
                del self._ids[waits]

    def helped_by(self, log: EventLog) -> Slices[list[Hashable]]:
        """Ids of the groups and classes that the events could help. In slices of OBJECTS pod classes."""
        round_ = _Round(log, self._ledger)
        helped: list[Hashable] = []
        looked_at = 0
        for waits, ids in self._ids.items():
            if round_.helps(waits):
                helped.extend(ids)
            looked_at += len(waits.classes)
            if looked_at >= OBJECTS:
                looked_at = 0
                yield
        return helped


def waits_for(group: Group, ledger: Ledger, trees: TopologyTrees) -> WaitsFor:
    """The conditions that could let the group start."""
    class_ids = frozenset(pod.class_id for gang in group.gangs for pod in gang.pending.values())
    classes = [ledger.classes[class_id] for class_id in class_ids]
    label_sets = {pod.label_set for gang in group.gangs for pod in gang.pending.values()}
    selected = any(map(ledger.selection.representative, label_sets))
    facts = [gang.facts for gang in group.gangs if gang.facts is not None]
    label_keys = {key for pod_class in classes for key in _label_keys(pod_class)}
    named = [tree for each in facts for tree in each.named_trees]
    for name in named:
        if (tree := trees.get(name)) is not None:
            label_keys.update(level.label_key for level in tree.levels if level.label_key)
    return WaitsFor(
        class_ids,
        frozenset(label_keys),
        inter_pod=selected or any(_has_inter_pod_rules(pod_class) for pod_class in classes),
        selected=selected,
        tree=bool(named),
        preempts=may_preempt(group),
    )


def _label_keys(pod_class: PodClass) -> Iterable[str]:
    """Node labels that decide where pods of the class may go."""
    yield from (key for key, _ in pod_class.node_selector)
    terms = [*(pod_class.required_node_affinity or ()), *(term for terms in pod_class.volumes for term in terms)]
    yield from (requirement.key for term in terms for requirement in term.labels)
    yield from (term.topology_key for term in (*pod_class.required_pod_affinity, *pod_class.shared_claims))
    yield from (term.topology_key for term in pod_class.required_pod_anti_affinity)
    yield from (spread.topology_key for spread in pod_class.spread if spread.hard)


def _has_inter_pod_rules(pod_class: PodClass) -> bool:
    rules = pod_class.required_pod_affinity or pod_class.required_pod_anti_affinity or pod_class.shared_claims
    return bool(rules) or any(spread.hard for spread in pod_class.spread)
