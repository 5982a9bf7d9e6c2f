"""The cluster's state as facts: applies object changes and returns the resulting batch for subscribers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from muster.clusterstate.basic_groups import BasicGroups
from muster.clusterstate.controller_gangs import ControllerGangs, ControllerKey, OwnedPod
from muster.clusterstate.device_objects import MANY_DEVICES, WEIGHT_OF_SLICE
from muster.clusterstate.device_offers import WEIGHT_OF_STEP
from muster.clusterstate.disruption_budgets import Budgets
from muster.clusterstate.encodable import POD_CLASSES, SELECTORS, NotEncoded
from muster.clusterstate.gang_incarnation import NO_CONTROLLER, Member, MemberState
from muster.clusterstate.gangs import Gangs
from muster.clusterstate.namespaces import Namespaces
from muster.clusterstate.nodes import Nodes
from muster.clusterstate.pending_batch import PendingBatch
from muster.clusterstate.pods import ENDED_PHASES, Pods
from muster.clusterstate.recomputation import SLICE, WEIGHT_OF_GANG, Recomputation, Recomputed
from muster.clusterstate.slice_budget import SliceBudget
from muster.clusterstate.tree_updates import WEIGHTS, TreeUpdates
from muster.clusterstate.trees import Trees
from muster.dialects import native, registry
from muster.dialects.composite_groups import CompositeGroups
from muster.dialects.definitions import ControllerGang, DefinitionKind
from muster.dialects.marks import GangMarks, Membership
from muster.gangs.facts import TREE_REVISIONS, Batch, GangFacts, PodPhase
from muster.kube.api_resources import (
    BUDGETS,
    CLAIMS,
    COMPOSITE_GROUPS,
    CSI_DRIVERS,
    CSI_NODES,
    DEFINITIONS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    HYPER_NODES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    VOLUMES,
)
from muster.kube.budget_facts import PodDisruptionBudget
from muster.kube.creation_failures import CreationFailure
from muster.kube.gang_marks import definition, gang_marks, pod_age
from muster.kube.malformed_objects import MalformedObjects, Reason, Unreadable, rejected
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Namespace, Node, OwnerReference, Pod, PodGroup, PriorityClass
from muster.kube.pod_facts import DEFAULT_SCHEDULER, Priorities

NO_MARKS: Final = GangMarks("")
PLAIN: Final = Membership()

_CLASS_KINDS: Final = (
    CLAIMS.kind,
    VOLUMES.kind,
    STORAGE_CLASSES.kind,
    CSI_NODES.kind,
    CSI_DRIVERS.kind,
    STORAGE_CAPACITIES.kind,
    RESOURCE_SLICES.kind,
    DEVICE_CLASSES.kind,
    RESOURCE_CLAIMS.kind,
    DEVICE_TAINT_RULES.kind,
    native.DEFINITION.revision_key,
    *registry.CONTROLLER_GANG_KINDS,
)


class ClusterState:
    """Nodes, pods, gangs and the rest, and the resourceVersions up to which they are known.

    A change of an object that changes no fact is not sent; it only raises `through`. Until `settle` is called, initial
    lists are applied and gangs are not computed. Its own maps have an entry per kind of objects or per PriorityClass
    (I11).
    """

    def __init__(
        self,
        scheduler_names: Collection[str],
        trees: Trees | None = None,
        waiting_kinds: Collection[str] = (),
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`waiting_kinds`: "Kind.group" of controllers whose pods always wait for the definition of their gang;
        `clock`: monotonic seconds, by which slices end (I12); None: they are bounded by number alone.
        """
        self.pods = Pods(scheduler_names)
        self.nodes = Nodes(self.pods.offered)
        self.trees = trees or Trees()
        self.composite_groups = CompositeGroups()
        self.gangs = Gangs(self.composite_groups)
        self.owners = ControllerGangs(waiting_kinds)
        self.basic_groups = BasicGroups()
        self.namespaces = Namespaces()
        self.budgets = Budgets(self.pods.label_sets)
        self.through: dict[str, int] = {}
        self._priority_classes: dict[str, PriorityClass] = {}
        self._unread: set[str] = set()
        self._malformed: dict[str, MalformedObjects] = {}  # by kind
        self._newest: dict[str, int] = {}  # newest changes of kinds that pod classes depend on
        self.history_restarted = False
        self._settled = False
        self._in_order = False
        self._pending = PendingBatch()
        self._recomputation = Recomputation()
        self._sweeping: Iterator[None] | None = None
        self._slice = SliceBudget(clock)
        self._tree_updates = TreeUpdates(self.trees, self.nodes.facts, self._pending, self._recomputation)
        self._listed: dict[str, int] = {}  # newest revisions of lists and watches, which `through` follows
        self._volumes_counted = False  # in this slice
        self._cause = ("", 0)  # kind and revision of the change that is being applied
        self._recomputed: dict[Recomputed, Callable[[str], bool]] = {
            Recomputed.POD: lambda uid: self._pending.add_pods(self.pods.recompute(uid)),
            Recomputed.NODE: self._refresh_node,
            Recomputed.GANG: lambda id_: self.gangs.touch(id_, self._recomputation.causes),
            Recomputed.OWNED_POD: self._rejoin,
            Recomputed.GROUPED_POD: self._regroup,
            Recomputed.BUDGET: self._remove_budget,
            Recomputed.STATIC_VOLUME: self._count_volume,
            Recomputed.STATIC_CLAIM: self._note_claim,
            Recomputed.DEVICE_SLICE: self._taint_slice,
            Recomputed.DEVICE_OFFERS: self._advance_offers,
            Recomputed.TOPOLOGY_MAP: self._tree_updates.read_map,
            Recomputed.TREE: self._tree_updates.check,
            Recomputed.PATTERN: self._tree_updates.evaluate,
        }
        volumes, devices = self.pods.volumes, self.pods.devices
        self._put: dict[str, Callable[[Any], bool]] = {
            NODES.kind: self._put_node,
            PODS.kind: self._put_pod,
            PRIORITY_CLASSES.kind: self._put_priority_class,
            BUDGETS.kind: self._put_budget,
            NAMESPACES.kind: self._put_namespace,
            CLAIMS.kind: self._without_facts(volumes.put_claim),
            VOLUMES.kind: self._without_facts(volumes.put_volume),
            STORAGE_CLASSES.kind: self._without_facts(volumes.put_class),
            CSI_NODES.kind: self._without_facts(volumes.put_csi_node),
            CSI_DRIVERS.kind: self._without_facts(volumes.put_driver),
            STORAGE_CAPACITIES.kind: self._without_facts(volumes.put_segment),
            RESOURCE_SLICES.kind: self._without_facts(devices.put_slice),
            DEVICE_CLASSES.kind: self._without_facts(devices.put_class),
            RESOURCE_CLAIMS.kind: self._without_facts(devices.put_claim),
            DEVICE_TAINT_RULES.kind: self._without_facts(devices.objects.put_taint_rule),
            TOPOLOGIES: self._tree_updates.put_map,
            HYPER_NODES.kind: self._tree_updates.put_hyper_node,
            COMPOSITE_GROUPS.kind: self._put_composite,
            **{name: partial(self._put_definition, kind) for name, kind in DEFINITIONS.items()},
        }
        self._drop: dict[str, Callable[[Removed], bool]] = {
            NODES.kind: self._drop_node,
            PODS.kind: self._drop_pod,
            PRIORITY_CLASSES.kind: self._drop_priority_class,
            BUDGETS.kind: self._drop_budget,
            NAMESPACES.kind: self._drop_namespace,
            CLAIMS.kind: self._without_facts(lambda removed: volumes.drop_claim(removed.uid)),
            VOLUMES.kind: self._without_facts(lambda removed: volumes.drop_volume(removed.uid)),
            STORAGE_CLASSES.kind: self._without_facts(lambda removed: volumes.drop_class(removed.uid)),
            CSI_NODES.kind: self._without_facts(lambda removed: volumes.drop_csi_node(removed.uid)),
            CSI_DRIVERS.kind: self._without_facts(lambda removed: volumes.drop_driver(removed.uid)),
            STORAGE_CAPACITIES.kind: self._without_facts(lambda removed: volumes.drop_segment(removed.uid)),
            RESOURCE_SLICES.kind: self._without_facts(lambda removed: devices.drop_slice(removed.uid)),
            DEVICE_CLASSES.kind: self._without_facts(lambda removed: devices.drop_class(removed.uid)),
            RESOURCE_CLAIMS.kind: self._without_facts(lambda removed: devices.drop_claim(removed.uid)),
            DEVICE_TAINT_RULES.kind: self._without_facts(lambda removed: devices.objects.drop_taint_rule(removed.uid)),
            TOPOLOGIES: self._tree_updates.drop_map,
            HYPER_NODES.kind: self._tree_updates.drop_hyper_node,
            COMPOSITE_GROUPS.kind: self._drop_composite,
            **{name: partial(self._drop_definition, name) for name in DEFINITIONS},
        }

    def apply(self, changes: ObjectChanges[Any]) -> tuple[Batch, ObjectChanges[Any] | None]:
        """Apply changes of one kind; returns the resulting batch, and the changes that are left if the time of a slice
        ended before them: apply these next. While `has_work`, `advance` returns more of the batch.
        """
        self._slice.begin()
        taken, newest = self._apply_items(changes)
        left = None
        if taken < len(changes.items):
            left = ObjectChanges(changes.kind, changes.items[taken:], changes.through)
        self._cause = (changes.kind, newest)
        self._tree_updates.end_batch(newest)
        self._queue_volumes()
        if changes.through and left is None:
            self._reach_through(changes.kind, changes.through)
        many_devices = self.pods.devices.objects.take_decoded_devices() > MANY_DEVICES
        fits = len(self._recomputation) <= SLICE and not many_devices and not self._slice.is_used()
        if fits or not self.has_work:
            self._recompute()
        else:
            self._reach()
        return self._take_batch(), left

    def _apply_items(self, changes: ObjectChanges[Any]) -> tuple[int, int]:
        """Apply changes until the time of the slice is used; returns their number, and the newest revision."""
        put, drop = self._put[changes.kind], self._drop[changes.kind]
        self._in_order = changes.through > 0
        items: list[Any] = changes.items
        newest, is_full = 0, self._is_full
        for taken, item in enumerate(items):
            if taken and is_full():
                return taken, newest
            try:
                removed = type(item) is Removed
                revision = item.revision if removed else item.metadata.revision
                self._cause = (changes.kind, revision)
                newest = max(newest, revision)
                matters = drop(item) if removed else put(item)
            except Exception as error:
                # One object that cannot be handled must not block all others.
                malformed = self._malformed.setdefault(changes.kind, MalformedObjects(changes.kind))
                malformed.note(rejected(item, error), effect="what is known of it stays", error=error)
                continue
            if self.pods.volumes.static_binding.has_changes:
                matters |= self._add_volumes()
            matters |= self._add_device_objects()
            if matters:
                self._pending.raise_revision(changes.kind, revision)
            if changes.kind in _CLASS_KINDS:
                self._newest[changes.kind] = max(revision, self._newest.get(changes.kind, 0))
        return len(items), newest

    def _reach_through(self, kind: str, through: int) -> None:
        """All changes of a kind up to a revision were applied."""
        if through < self._listed.get(kind, 0):
            self._restart_history(kind, through)
        self._listed[kind] = through
        if kind in self._unread:
            self._unread.discard(kind)
            self._cause = (kind, through)
            self._queue(Recomputed.POD, self.pods.unread(self._unread))
            self._queue_volumes()
        self._recomputation.reach(kind, through)

    @property
    def has_work(self) -> bool:
        """Changes were applied that concern so many facts that `advance` computes the rest."""
        return len(self._recomputation) > 0 or self._sweeping is not None

    def advance(self) -> Batch:
        """Compute the next slice of what changes have left; returns the resulting batch. Its `through` rises when all
        facts are computed that are due to the changes up to it.
        """
        self._recompute_slice()
        self._sweep()
        return self._take_batch()

    def _restart_history(self, kind: str, through: int) -> None:
        """A list is older than what was read before: the API server was restored from a backup."""
        if self._newest.get(kind, 0) > through:
            self._newest[kind] = through
        self.trees.revisions.restart(kind, through)
        for each in (kind, TREE_REVISIONS) if kind == NODES.kind else (kind,):
            self._recomputation.restart(each, through)
            self._pending.lower_revision(each, through)
            self.through[each] = min(through - 1, self.through.get(each, 0))
        self.history_restarted = True

    def take_history_restarted(self) -> bool:
        """Whether revisions have become lower since the last call, so that subscribers need a snapshot."""
        restarted, self.history_restarted = self.history_restarted, False
        return restarted

    def settle(self, unread: Iterable[str] = ()) -> Iterator[None]:
        """The initial lists are complete, except for `unread` kinds, which cannot be read: compute gangs and trees, in
        slices. Changes may be applied between them; gangs are complete after the last one. It ends however many changes
        arrive: what they leave may remain to be computed, as later.
        """
        self._tree_updates.begin()
        self._unread = set(unread)
        self._cause = (PODS.kind, self._newest.get(PODS.kind, 0))
        self._queue(Recomputed.POD, self.pods.unread(self._unread))
        self._queue_volumes()
        yield from self._finish_work()
        if self._tree_updates.review():
            self._recompute_slice()
        for _ in range(2 * self.gangs.unsettled // SLICE):
            self._settle_gangs(SLICE)
            yield
        self._settled = True
        self._take_batch()
        yield from self._finish_work()

    def _finish_work(self) -> Iterator[None]:
        """Compute what is queued now."""
        work = self._recomputation
        last = work.taken + len(work)
        while self.has_work and work.taken < last:
            self.advance()
            yield

    def review(self) -> Batch:
        """Update trees after node changes; returns the resulting batch. While `has_work`, `advance` returns more of it.

        A changed tree is sent whole, so that it must not be sent again for every node of a series: callers that apply
        changes call this at intervals while `trees.stale`.
        """
        if self._tree_updates.review():
            self._recompute_slice()
        return self._take_batch()

    def not_encoded(self, found: Iterable[NotEncoded]) -> None:
        """Facts cannot be sent to subscribers: pods of such classes wait, and of classes that name such selectors.
        While `has_work`, `advance` returns the pods. Other facts that need more than to be left out are replaced where
        they are encoded.
        """
        classes: dict[str, str] = {}
        for each in found:
            if each.kind == POD_CLASSES:
                classes[each.id] = f"what it requests of nodes {each.problem}"
            elif each.kind == SELECTORS:
                problem = f"a selector of its affinity or spread {each.problem}"
                classes |= dict.fromkeys(self.pods.classes.naming(each.id), problem)
        self._cause = (PODS.kind, self.through.get(PODS.kind, 0))
        self._queue(Recomputed.POD, self.pods.block(classes))

    def note_creation_failures(self, found: Mapping[str, Collection[CreationFailure]]) -> Batch:
        """All failures to create pods that events report of the controllers of these gangs; returns the resulting
        batch.
        """
        for gang_id, failures in found.items():
            self.gangs.note_creation_failures(gang_id, failures)
        return self._take_batch()

    def snapshot(self) -> Batch:
        """The whole state."""
        return Batch(
            pod_classes=self.pods.classes.all(),
            nodes=tuple(self.nodes.facts.values()),
            pods=tuple(self.pods.facts.values()),
            gangs=tuple(self.gangs.facts.values()),
            changed=self.trees.revisions.newest(self.through),
            through=dict(self.through),
            budgets=tuple(self.budgets.facts.values()),
            trees=tuple(self.trees.facts.values()),
            selectors=self.pods.classes.selectors,
            label_sets=self.pods.label_sets.all(),
            namespaces=tuple(self.namespaces.facts.values()),
            static_volumes=tuple(self.pods.volumes.static_binding.volumes.values()),
            static_claims=tuple(self.pods.volumes.static_binding.claims.values()),
            device_objects=tuple(self.pods.devices.objects.streamed.values()),
        )

    def sweep(self) -> Batch:
        """Drop pod classes, selectors and label sets that no pod has had since the last sweep; returns the resulting
        batch. While `has_work`, `advance` returns more of it.
        """
        if self._sweeping is None:
            self._sweeping = self._swept()
        self._sweep()
        return self._take_batch()

    def _swept(self) -> Iterator[None]:
        yield from self.pods.classes.sweep()
        self.pods.devices.extended.request(self.pods.classes.extended)
        yield from self.pods.label_sets.sweep(self.budgets.needed_indexes())

    def _sweep(self) -> None:
        """Go on with the sweep under way."""
        for _ in self._sweeping or ():
            return
        self._sweeping = None

    def sizes(self) -> dict[str, int]:
        """Number of facts by kind."""
        return {
            "nodes": len(self.nodes.facts),
            "pods": len(self.pods.facts),
            "pod_classes": len(self.pods.classes),
            "pod_selectors": len(self.pods.classes.selectors),
            "label_sets": len(self.pods.label_sets),
            "namespaces": len(self.namespaces.facts),
            **self.pods.volumes.sizes(),
            **self.pods.devices.sizes(),
            "gangs": len(self.gangs.facts),
            "owners": len(self.owners),
            "basic_groups": len(self.basic_groups),
            "composite_groups": len(self.composite_groups),
            "foreign_pods": len(self.gangs.foreign),
            "budgets": len(self.budgets.facts),
            "trees": len(self.trees.facts),
        }

    # -- one method per kind; each returns whether facts changed

    def _put_node(self, node: Node) -> bool:
        before = self.nodes.facts.get(node.metadata.name)
        facts = self.nodes.put(node)
        if facts is not None:
            self._pending.nodes[facts.name] = facts
            self.trees.node_changed(before, facts, node.metadata.revision)
            self.pods.put_node(facts)
        return facts is not None

    def _drop_node(self, removal: Removed) -> bool:
        name = self.nodes.remove(removal.uid)
        if name is not None:
            self._pending.nodes[name] = None
            self.trees.node_changed(None, None, removal.revision)
            self.pods.drop_node(name)
        return name is not None

    def _add_volumes(self) -> bool:
        """Add changed volumes and claims to the batch; returns whether there are any."""
        volumes, claims = self.pods.volumes.static_binding.take_changes()
        self._pending.static_volumes.update(volumes)
        self._pending.static_claims.update(claims)
        return bool(volumes or claims)

    def _add_device_objects(self) -> bool:
        """Add changed device objects to the batch; returns whether there are any."""
        objects = self.pods.devices.objects
        if not objects.has_changes:
            return False
        self._pending.device_objects.update(objects.take_changes())
        return True

    # -- facts that are computed again because of other objects

    def _without_facts(self, take: Callable[[Any], None]) -> Callable[[Any], bool]:
        """`take` changes no fact at once."""

        def taken(item: Any) -> bool:
            take(item)
            return False

        return taken

    def _queue(self, fact: Recomputed, names: Collection[str]) -> None:
        self._recomputation.add(fact, names, *self._cause)

    def _queue_volumes(self) -> None:
        """Pods come before nodes: what nodes offer may be requested from when they offer it. Volumes and devices, on
        which both depend, come first.
        """
        volumes, claims = self.pods.volumes.take_stale_static()
        static = [(Recomputed.STATIC_VOLUME, name) for name in volumes]
        static += [(Recomputed.STATIC_CLAIM, "/".join(id_)) for id_ in claims]
        static += [(Recomputed.DEVICE_SLICE, name) for name in self.pods.devices.objects.take_stale_slices()]
        self._recomputation.add_first(static, *self._cause)
        self._queue(Recomputed.POD, self.pods.take_stale())
        self._queue(Recomputed.NODE, self.pods.take_stale_nodes(self.nodes.facts))
        self._queue(Recomputed.DEVICE_OFFERS, self.pods.device_offers.take_begun())

    def _is_full(self) -> bool:
        """The slice has used its time, with that of the gangs which it has changed: they are computed at its end."""
        return self._slice.is_used(self.gangs.unsettled_weight / 1e6 if self._settled else 0.0)

    def _recompute_slice(self) -> None:
        self._slice.begin()
        self._recompute()

    def _recompute(self) -> None:
        """Compute what is left of one slice."""
        work, changed = self._recomputation, False
        for fact, name in work.take(self._weight, self._is_full):
            try:
                changed |= self._recomputed[fact](name)
            except Exception as error:
                found = Unreadable(Reason.REJECTED, f"{fact.name} {name}: {error}")
                malformed = self._malformed.setdefault("recomputation", MalformedObjects("recomputation"))
                malformed.note(found, effect="what is known of it stays", error=error)
        tainted = self._add_device_objects()
        changed |= tainted
        if self._volumes_counted or tainted:
            self._volumes_counted = False
            changed |= self._add_volumes()
            self._cause = next(iter(work.causes.items()))
            self._queue_volumes()
        stale = self.pods.take_stale_nodes(self.nodes.facts)  # by the pods of this slice
        if len(stale) * self.pods.weight_of_node > SLICE:
            self._cause = next(iter(work.causes.items()), self._cause)
            self._queue(Recomputed.NODE, stale)
        else:
            for name in stale:
                changed |= self._refresh_node(name)
        for name in self.pods.device_offers.take_begun():
            work.resume(Recomputed.DEVICE_OFFERS, name)
        if late := self.pods.devices.take_stale_pods():  # by the nodes of this slice
            self._cause = next(iter(work.causes.items()), self._cause)
            self._queue(Recomputed.POD, late)
        if changed:
            for kind, revision in work.causes.items():
                self._pending.raise_revision(kind, revision)
        self._reach()

    def _reach(self) -> None:
        """Raise revisions of which all facts are computed."""
        self.through.update(self._recomputation.reached())
        self._tree_updates.reach(self.through)

    def _weight(self, fact: Recomputed) -> int:
        """Processor time of a fact, in multiples of a pod's."""
        if fact is Recomputed.DEVICE_SLICE:
            return WEIGHT_OF_SLICE
        if fact is Recomputed.DEVICE_OFFERS:
            return WEIGHT_OF_STEP
        if fact is Recomputed.GANG:
            return WEIGHT_OF_GANG
        return self.pods.weight_of_node if fact is Recomputed.NODE else WEIGHTS.get(fact, 1)

    def _count_volume(self, name: str) -> bool:
        self.pods.volumes.static_binding.count_volume(name)
        self._volumes_counted = True
        return False

    def _note_claim(self, id_: str) -> bool:
        namespace, name = id_.split("/", 1)
        self.pods.volumes.static_binding.note_claim((namespace, name))
        self._volumes_counted = True
        return False

    def _taint_slice(self, name: str) -> bool:
        self.pods.devices.taint_slice(name)
        return False

    def _refresh_node(self, name: str) -> bool:
        facts = self.nodes.refresh(name)
        if facts is not None:
            self._pending.nodes[name] = facts
        return facts is not None

    def _advance_offers(self, name: str) -> bool:
        if self.pods.device_offers.advance(name):
            self._recomputation.resume(Recomputed.DEVICE_OFFERS, name)
            return False
        return self._refresh_node(name)

    def _put_pod(self, pod: Pod) -> bool:
        metadata = pod.metadata
        ours = self.pods.is_ours(pod)
        if not ours:
            self._put_foreign_pod(pod)
        elif self.gangs.foreign:
            self.gangs.drop_foreign_pod(metadata.uid, PODS.kind, metadata.revision)
        if not self.pods.matters(pod):
            return self._forget_pod(Removed(metadata.uid, metadata.revision))
        marks, membership, group = NO_MARKS, PLAIN, ""
        job: ControllerGang | None = None
        controller: OwnerReference | None = None
        if ours:
            controller = metadata.controlling
            job = self.owners.job_of(metadata.namespace, controller)
            marks = gang_marks(pod, job.name if job is not None else "")
            group = marks.pod_group
            marks = self.basic_groups.applicable(marks) if group else marks
            membership = registry.membership_of(marks) or PLAIN
        labelled, is_new = self.pods.labelled(pod)
        if is_new:
            labelled.budgets = self.budgets.covering(labelled)
        changed = self._pending.add_pods(self.pods.put(pod, membership, labelled, job))
        if changed and self.pods.depends_on_others(metadata.uid):
            for kind, revision in self._newest.items():  # a replica that has not seen them computes another class
                self._pending.raise_revision(kind, revision)
        self._join_gang(pod, membership.gang_id, marks, controller, group)
        return changed

    def _put_foreign_pod(self, pod: Pod) -> None:
        """Another scheduler places the pod, whatever its marks say."""
        metadata, marks = pod.metadata, gang_marks(pod)
        membership = registry.membership_of(marks) if marks else None
        if membership is not None and membership.gang_id:
            scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
            live = not metadata.deletion_timestamp and pod.status.phase not in ENDED_PHASES
            put = self.gangs.put_foreign_pod
            put(membership.gang_id, pod_age(pod), scheduler, PODS.kind, metadata.revision, live=live)
        elif self.gangs.foreign:
            self.gangs.drop_foreign_pod(metadata.uid, PODS.kind, metadata.revision)

    def _join_gang(
        self, pod: Pod, gang_id: str, marks: GangMarks, controller: OwnerReference | None, group: str
    ) -> None:
        """`group`: the name of the pod's scheduling group, which is not among `marks` if it is basic."""
        facts = self.pods.facts[pod.metadata.uid]
        owned = controller is not None and bool(controller.uid)
        if not owned:
            self.owners.drop_pod(facts.uid)
        if not group:
            self.basic_groups.drop_pod(facts.uid)
        if not gang_id:
            self.gangs.drop_pod(facts.uid, PODS.kind, facts.revision, decide=self._in_order)
            if not owned and not group:
                return
        state = MemberState.DELETING if facts.deleting else MemberState.ENDED if facts.phase.ended else MemberState.LIVE
        succeeded = state is MemberState.ENDED and facts.phase is PodPhase.SUCCEEDED
        member = Member(pod_age(pod), state, controller.uid if controller is not None else NO_CONTROLLER, succeeded)
        if gang_id:
            marks = self.gangs.put_pod(gang_id, member, marks, PODS.kind, facts.revision, decide=self._in_order)
        if owned and controller is not None:
            self.owners.put_pod(facts.namespace, controller, OwnedPod(marks, member))
        if group:
            self.basic_groups.put_pod(group, marks, member)

    def _rejoin(self, uid: str) -> bool:
        """The gang of a pod's controller may have changed."""
        if (found := self.owners.remark(uid)) is None:
            return False
        job, pod, remarked = found
        self.basic_groups.set_marks(uid, remarked.marks)
        return self._remark(pod.member, pod.marks, remarked.marks, job)

    def _regroup(self, uid: str) -> bool:
        """The group that a pod names may be basic now, or not any more."""
        if (found := self.basic_groups.remark(uid)) is None:
            return False
        pod, remarked = found
        self.owners.set_marks(uid, remarked.marks)
        return self._remark(pod.member, pod.marks, remarked.marks, self.owners.job_of_pod(uid))

    def _remark(self, member: Member, marks: GangMarks, remarked: GangMarks, job: ControllerGang | None) -> bool:
        """A pod's marks changed because of other objects. `job`: the gang of its controller."""
        uid = member.age.uid
        before, after = (registry.membership_of(each) or PLAIN for each in (marks, remarked))
        changed = self._pending.add_pods(self.pods.rejoin(uid, before, after, job))
        kind, revision = next(iter(self._recomputation.causes.items()))
        if after.gang_id:
            self.gangs.put_pod(after.gang_id, member, remarked, kind, revision, decide=self._in_order)
        else:
            self.gangs.drop_pod(uid, kind, revision, decide=self._in_order)
        return changed

    def _drop_pod(self, removal: Removed) -> bool:
        self.gangs.drop_foreign_pod(removal.uid, PODS.kind, removal.revision)
        return self._forget_pod(removal)

    def _forget_pod(self, removal: Removed) -> bool:
        """Forget a pod as one that matters."""
        self.owners.drop_pod(removal.uid)
        self.basic_groups.drop_pod(removal.uid)
        self.gangs.drop_pod(removal.uid, PODS.kind, removal.revision, decide=self._in_order)
        if not self.pods.remove(removal.uid):
            return False
        self._pending.pods[removal.uid] = None
        return True

    def _put_priority_class(self, priority_class: PriorityClass) -> bool:
        self._priority_classes[priority_class.metadata.uid] = priority_class
        self._reprioritise()
        return False

    def _drop_priority_class(self, removal: Removed) -> bool:
        if self._priority_classes.pop(removal.uid, None) is not None:
            self._reprioritise()
        return False

    def _reprioritise(self) -> None:
        priorities = Priorities.of(self._priority_classes.values())
        self._queue(Recomputed.POD, self.pods.reprioritise(priorities))
        self._queue(Recomputed.GANG, self.gangs.reprioritise(priorities.by_name))

    def _put_namespace(self, namespace: Namespace) -> bool:
        metadata = namespace.metadata
        return self._add_namespace(self.namespaces.put(metadata.uid, metadata.name, metadata.labels))

    def _drop_namespace(self, removal: Removed) -> bool:
        return self._add_namespace(self.namespaces.remove(removal.uid))

    def _add_namespace(self, name: str | None) -> bool:
        if name is not None:
            self._pending.namespaces[name] = self.namespaces.facts.get(name)
        return name is not None

    def _put_budget(self, budget: PodDisruptionBudget) -> bool:
        change = self.budgets.put(budget)
        if change.facts is not None:
            self._pending.budgets[change.facts.id] = change.facts
        self._queue(Recomputed.POD, self.pods.covered(change.covered))
        return change.facts is not None

    def _drop_budget(self, removal: Removed) -> bool:
        removed = self.budgets.remove(removal.uid)
        if removed is None:
            return False
        id_, covered = removed
        self._queue(Recomputed.POD, self.pods.covered(covered))
        self._queue(Recomputed.BUDGET, (id_,))
        return False

    def _remove_budget(self, id_: str) -> bool:
        """A budget was removed, and no pod names it any more; another one may have its id by now."""
        self._pending.budgets[id_] = self.budgets.facts.get(id_)
        return True

    def _put_definition(self, kind: DefinitionKind, group: PodGroup) -> bool:
        """The facts of the gang and of its pods are computed later."""
        defined = definition(group, kind)
        gang_id = registry.defined_gang(defined)
        if gang_id is not None:
            self.gangs.put_definition(gang_id, defined, kind.revision_key, group.metadata.revision)
        else:
            self.gangs.drop_definition(defined.uid, kind.revision_key, group.metadata.revision)
        self._queue_owned(self.owners.put_definition(defined, registry.controller_gang(defined)))
        self._queue(Recomputed.GROUPED_POD, self.basic_groups.put_definition(defined))
        if kind is native.DEFINITION:
            self._queue(Recomputed.GANG, self.composite_groups.put_group(defined))
            self.pods.devices.put_group(group)
        return False

    def _drop_definition(self, kind: str, removal: Removed) -> bool:
        self.gangs.drop_definition(removal.uid, kind, removal.revision)
        self._queue_owned(self.owners.drop_definition(removal.uid))
        self._queue(Recomputed.GROUPED_POD, self.basic_groups.drop_definition(removal.uid))
        self._queue(Recomputed.GANG, self.composite_groups.drop_group(removal.uid))
        self.pods.devices.drop_group(removal.uid)
        return False

    def _put_composite(self, group: PodGroup) -> bool:
        """The facts of gangs below are computed later."""
        self._queue(Recomputed.GANG, self.composite_groups.put_composite(definition(group, native.COMPOSITE)))
        return False

    def _drop_composite(self, removal: Removed) -> bool:
        self._queue(Recomputed.GANG, self.composite_groups.drop_composite(removal.uid))
        return False

    def _queue_owned(self, owners: Iterable[ControllerKey]) -> None:
        self._queue(Recomputed.OWNED_POD, self.owners.pods_of(owners))

    # -- the batch for subscribers

    def _take_batch(self) -> Batch:
        gangs: list[GangFacts] = []
        removed: list[str] = []
        if self._settled:
            gangs, removed = self._settle_gangs()
        return self._pending.take(gangs, removed, self.through, self.pods.classes, self.pods.label_sets)

    def _settle_gangs(self, most: int | None = None) -> tuple[list[GangFacts], list[str]]:
        """Compute so many of the gangs that have changed, or all; returns the new facts, and ids of removed gangs."""
        gangs, removed, revisions = self.gangs.settle(most)
        if self._tree_updates.offer(gangs, removed, revisions):
            self._reach()
        for kind, revision in revisions.items():
            self._pending.raise_revision(kind, revision)
        self._note_starts(gangs, removed)
        return gangs, removed

    def _note_starts(self, gangs: Iterable[GangFacts], removed: Iterable[str]) -> None:
        """Which gangs start together decides which of their pods requests the devices of a claim that they share. Of a
        composite some children may start without the others.
        """
        for gang in gangs:
            self.pods.devices.start_together(gang.id, () if gang.composites else gang.group)
        for id_ in removed:
            self.pods.devices.start_together(id_, ())
        if self.pods.devices.has_stale_pods:
            self._queue_volumes()
