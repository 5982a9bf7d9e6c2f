"""The cache: gangs, their pods and groups, and the ledger, updated from cluster-state's batches."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from muster.coordinator.core.backfill.run_times import RunTimes
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.events import ClusterEvent, EventKind, Rules
from muster.coordinator.core.gang.composite_trees import Children, composites_of, root_to_start, started_children
from muster.coordinator.core.gang.gang import Gang, Group, plain_facts
from muster.coordinator.core.preemption.nomination import Nomination
from muster.coordinator.core.queue.pre_enqueue import groups_agree, why_not_alone, why_not_yet
from muster.coordinator.core.report.waits import Lack, Wait
from muster.coordinator.core.slices import Slices, parts
from muster.gangs.device_object_parts import cut_by_bytes
from muster.gangs.facts import Batch, GangFacts, GangMode, PodFacts, Problem, Severity

MAX_OUTDATED: Final = 50
"""Gangs that are reconciled in one step for the sake of their message alone, 0.4 ms each; the next step goes on."""
_DECODED_BYTES: Final = 1 << 17
"""Content of device objects that is decoded in one piece: about 5 ms."""


class Cache:
    """Gangs by id, groups by id, and what is to be reconciled.

    `touched` maps gangs to be reconciled to whether they changed in a way that could let them start. `gone` are deleted
    gangs, in order. `disbanded` are groups without gangs. All three are empty at the end of a step.

    Gangs, pods (`gang_of`) and budgets end with the last object that makes them, groups with their last gang.
    """

    def __init__(
        self,
        ledger: Ledger,
        trees: TopologyTrees,
        wake: Callable[[ClusterEvent], None],
        rules: Rules,
    ) -> None:
        """`wake` takes the changes that may let pending groups start."""
        self.ledger, self.trees, self._wake = ledger, trees, wake
        self._rules = rules
        self.gangs: dict[str, Gang] = {}
        self.groups: dict[str, Group] = {}
        self.gang_of: dict[str, Gang] = {}
        self.revision: dict[str, int] = {}
        self.went_back = False
        """The last snapshot was older than what was seen: the API server may have been restored from a backup."""
        self._through: dict[str, int] = {}
        self.budgets: dict[str, int] = {}
        """Evictions that disruption budgets allow now, by budget."""
        self.nominations: dict[Group, Nomination] = {}
        """Nominated capacity, by the group that it is nominated for."""
        self.run_times = RunTimes()
        self.touched: dict[Gang, bool] = {}
        self.gone: list[Gang] = []
        self.disbanded: list[Group] = []
        self._partners: defaultdict[str, set[str]] = defaultdict(set)
        """Gangs that declare a gang in their group, by its id: as long as they declare it."""
        self._outdated: dict[str, None] = {}
        """Gangs whose message may name an old state of a gang that does not declare them; each ends when it is touched,
        MAX_OUTDATED at a time.
        """
        self._doubtful: dict[Gang, None] = {}
        """Gangs of which a bound pod was shown without a node, until the end of the step."""
        self._tree_changes = 0
        self._displaced: dict[Gang, None] = {}
        """Gangs that wait until something that is under way for a group is done; each ends then, or with the gang."""

    def touch(self, gang: Gang, *, edited: bool = False) -> None:
        """Have the gang reconciled; `edited`: it changed in a way that could let it start."""
        self.touched[gang] = edited or self.touched.get(gang, False)

    def touch_group(self, group: Group) -> None:
        """Have all gangs of the group reconciled."""
        for gang in group.gangs:
            self.touch(gang)

    # -- batches

    def replace(self, batch: Batch) -> Slices[None]:
        """Take in a snapshot, in slices: objects that are not in it are gone."""
        pods = {pod.uid for pod in batch.pods}
        nodes = {node.name for node in batch.nodes}
        gangs = {gang.id for gang in batch.gangs}
        seen = set(self.ledger.capacity.seated_uids()) - set(self.ledger.reserved)
        budgets = {budget.id for budget in batch.budgets}
        trees = {tree.name for tree in batch.trees}
        selection, volumes = self.ledger.selection, self.ledger.volumes
        removals = Batch(
            removed_trees=tuple(tree.name for tree in self.trees.all() if tree.name not in trees),
            removed_budgets=tuple(id_ for id_ in self.budgets if id_ not in budgets),
            removed_nodes=tuple(name for name in self.ledger.nodes if name not in nodes),
            removed_pods=tuple(uid for uid in dict.fromkeys([*seen, *self.gang_of]) if uid not in pods),
            removed_gangs=tuple(id_ for id_, gang in self.gangs.items() if not gang.plain and id_ not in gangs),
            removed_pod_classes=_without(self.ledger.classes, (each.id for each in batch.pod_classes)),
            removed_selectors=_without(selection.selectors, (each.id for each in batch.selectors)),
            removed_label_sets=_without(selection.rows, (each.id for each in batch.label_sets)),
            removed_namespaces=_without(selection.namespaces, (each.name for each in batch.namespaces)),
            removed_static_volumes=_without(volumes.volumes, (each.name for each in batch.static_volumes)),
            removed_static_claims=_without(volumes.claims, (each.id for each in batch.static_claims)),
            device_objects=self.ledger.devices.missing(batch),
        )
        yield
        yield from self._compare_revisions(batch)
        yield from self.apply(removals)
        self.revision = {}  # a restored API server has lower revisions (docs/reliability.md)
        yield from self.apply(batch)

    def _compare_revisions(self, batch: Batch) -> Slices[None]:
        """Note whether the snapshot is older than what was seen."""
        self.went_back = any(version < self._through.get(kind, 0) for kind, version in batch.through.items())
        for pods in parts(batch.pods):
            for pod in pods:
                if (gang := self.gang_of.get(pod.uid)) is not None and gang.pods[pod.uid].revision > pod.revision:
                    self.went_back = True
            yield

    def apply(self, batch: Batch) -> Slices[None]:
        """Take in a batch, in slices. Gangs are updated after known pods and before new pods: that shows whether a gang
        that was declared anew has a pod left of its former incarnation.
        """
        ledger = self.ledger
        if batch.namespaces or batch.selectors or batch.label_sets:
            yield from self._apply_labels(batch)
        if batch.nodes or batch.pod_classes or batch.removed_nodes:
            yield from self._apply_nodes(batch)
        if batch.static_volumes or batch.static_claims or batch.removed_static_volumes or batch.removed_static_claims:
            yield from self._apply_volumes(batch)
        for device_objects in cut_by_bytes(batch.device_objects, _DECODED_BYTES):
            ledger.devices.apply(Batch(device_objects=device_objects))
            self._touch_users()
            yield
        if batch.trees or batch.removed_trees:
            yield from self._put_trees(batch)
        for uids in parts(batch.removed_pods):
            for uid in uids:
                self._drop_pod(uid)
            self._freed(EventKind.CAPACITY_FREED, ledger.forget(uids))
            yield
        self._note_arrivals(batch)
        for pods in parts(batch.pods):
            freed, selected = ledger.observe(pods)
            self._freed(EventKind.CAPACITY_FREED, freed)
            if selected:
                self._wake(ClusterEvent(EventKind.POD_SCHEDULED))
            yield
        for pods in parts(batch.pods):
            for pod in pods:
                if pod.uid in self.gang_of:
                    self._put_pod(pod)
            yield
        for gangs in parts(batch.gangs):
            for facts in gangs:
                self._put_gang(facts)
            yield
        for pods in parts(batch.pods):
            for pod in pods:
                if pod.ours and pod.uid not in self.gang_of:
                    self._put_pod(pod)
            yield
        for ids in parts(batch.removed_gangs):
            for id_ in ids:
                if (gang := self.gangs.get(id_)) is not None:
                    self.drop_gang(gang)
            yield
        if batch.budgets or batch.removed_budgets:
            self._apply_budgets(batch)
        if batch.removed_pod_classes or ledger.has_retired_classes:
            nominated = {class_id for each in self.nominations.values() for _, class_id in each.capacity}
            ledger.retire_classes(batch.removed_pod_classes, nominated)
        yield from ledger.selection.forget_in_slices(batch)
        self._through = batch.through or self._through
        for kind, revision in batch.changed.items():
            self.revision[kind] = max(revision, self.revision.get(kind, 0))

    def _touch_users(self) -> None:
        """Have the gangs reconciled of pods without a seat whose claims were allocated or deallocated."""
        devices = self.ledger.devices
        for each in devices.take_changed_users():
            for uid in devices.pods_of_group(each) or (each,):
                gang = self.gang_of.get(uid)
                if gang is not None and gang.has_no_place(uid):
                    self.touch(gang, edited=True)

    def _apply_labels(self, batch: Batch) -> Slices[None]:
        yield from self.ledger.selection.apply_in_slices(batch)
        yield

    def _apply_nodes(self, batch: Batch) -> Slices[None]:
        """Nodes, and then classes: a resource that a class requests and no node has is counted on its own."""
        for nodes in parts(batch.nodes):
            for node in nodes:
                for event in self.ledger.put_node(node):
                    self._wake(event)
            yield
        for pod_classes in parts(batch.pod_classes):
            for pod_class in pod_classes:
                self.ledger.put_class(pod_class)
            yield
        for names in parts(batch.removed_nodes):
            for name in names:
                self.ledger.drop_node(name)
                self._wake(ClusterEvent(EventKind.NODE_REMOVED, (name,)))
            yield

    def _apply_budgets(self, batch: Batch) -> None:
        for budget in batch.budgets:
            if budget.allowed > self.budgets.get(budget.id, 0):
                self._wake(ClusterEvent(EventKind.BUDGET_INCREASED))
            self.budgets[budget.id] = budget.allowed
        for id_ in batch.removed_budgets:
            if self.budgets.pop(id_, None) is not None:
                self._wake(ClusterEvent(EventKind.BUDGET_INCREASED))

    def _apply_volumes(self, batch: Batch) -> Slices[None]:
        volumes = self.ledger.volumes
        for names in parts(batch.removed_static_volumes):
            volumes.apply(Batch(removed_static_volumes=names))
            yield
        for static_volumes in parts(batch.static_volumes):
            volumes.apply(Batch(static_volumes=static_volumes))
            yield
        volumes.apply(Batch(static_claims=batch.static_claims, removed_static_claims=batch.removed_static_claims))

    def _note_arrivals(self, batch: Batch) -> None:
        """Remember pods that others put on nodes on which evictions free capacity."""
        if not self.nominations:
            return
        waiting = [each for each in self.nominations.values() if each.evictions_begun]
        if not waiting:
            return
        seated, reserved = self.ledger.capacity.seated_uids(), self.ledger.reserved
        arrived = [pod for pod in batch.pods if pod.seated and pod.uid not in seated and pod.uid not in reserved]
        for nomination in waiting if arrived else ():
            nomination.note_arrivals(arrived)

    def _put_trees(self, batch: Batch) -> Slices[None]:
        """A changed tree may admit gangs that it kept out, or contradict their constraints."""
        dropped = self.trees.drop(batch.removed_trees)
        if self.trees.put(batch.trees) or dropped:
            self._wake(ClusterEvent(EventKind.TOPOLOGY_TREE_CHANGED))
            self._tree_changes += 1
            for gangs in parts(tuple(self.gangs.values())):
                for gang in gangs:
                    facts = gang.facts
                    if facts is not None and facts.named_trees:
                        gang.constraints = self.trees.constraints_of(facts)
                        self.touch(gang, edited=True)
                yield

    def topology_of(self, group: Group) -> tuple[object, ...]:
        """Identifies the trees and topology constraints that the group's placement depends on; empty if on none."""
        facts = [gang.facts for gang in group.gangs if gang.facts is not None]
        if not any(each.constraints or each.subgroups or each.composites for each in facts):
            return ()
        declared = ((each.id, each.tree, each.constraints, each.subgroups, each.composites) for each in facts)
        return (self._tree_changes, *declared)

    # -- pods

    def _put_pod(self, pod: PodFacts) -> None:
        gang_id = pod.gang or plain_facts(pod).id
        gang = self.gang_of.get(pod.uid)
        if gang is not None and gang.id != gang_id and (pod.node or not gang.bind_sent(pod.uid)):
            self._drop_pod(pod.uid)
            gang = None
        if gang is None:
            gang = self._gang_for(pod, gang_id)
        before, needed, priority = gang.pods.get(pod.uid), gang.must_place, gang.preempting_priority
        if pod.group_uid or (before is not None and before.group_uid):
            self.ledger.devices.put_group_pod(before, pod)
        waited, ran = pod.uid in gang.pending, pod.uid in gang.bound
        if pod.seated and not gang.bind_sent(pod.uid) and pod.uid not in gang.bound:
            self._wake(ClusterEvent(EventKind.POD_BOUND_BY_OTHERS))
        self.release(gang, [seat.uid] if (seat := gang.put_pod(pod)) is not None and not pod.seated else [])
        if ran and pod.uid in gang.acknowledged:
            self._doubt(gang, pod.uid)
        if before is None or before.priority != pod.priority:
            edited = True
            if before is not None and pod.priority < before.priority:
                self._wake(ClusterEvent(EventKind.POD_PRIORITY_LOWERED))
        elif before.class_id != pod.class_id or before.label_set != pod.label_set:
            edited = pod.uid in gang.pending
            if (resized := gang.resize_seat(pod)) is not None:
                self._freed(EventKind.CAPACITY_FREED, self.ledger.reserve([resized]))
        else:
            edited = (
                gang.must_place < needed
                or (pod.uid in gang.pending and not waited)
                or gang.preempting_priority > priority
            )
        self.touch(gang, edited=edited)
        if gang.run_ended:
            self.restart(gang)

    def _doubt(self, gang: Gang, uid: str) -> None:
        """A bound pod is shown without a node. It keeps its place for now, unless the gang has no permit: members that
        may not run must not help others to start (I1).
        """
        if gang.permit.granted:
            self.ledger.reserve([gang.acknowledged[uid]])
            self._doubtful[gang] = None
        else:
            gang.lose_seat(uid)
            gang.forget_lost()

    def _gang_for(self, pod: PodFacts, gang_id: str) -> Gang:
        gang = self.gangs.get(gang_id)
        if gang is not None and gang.plain and pod.uid not in gang.pods:
            self.drop_gang(gang)  # a plain pod came anew under the same name
            gang = None
        if gang is None:
            gang = self._new_gang(gang_id)
            if not pod.gang:
                gang.facts = plain_facts(pod)
        self.gang_of[pod.uid] = gang
        return gang

    def _drop_pod(self, uid: str) -> None:
        gang = self.gang_of.pop(uid, None)
        if gang is None:
            return
        priority, pod = gang.preempting_priority, gang.pods[uid]
        if pod.group_uid:
            self.ledger.devices.put_group_pod(pod, None)
        seat = gang.drop_pod(uid)
        self.release(gang, [seat.uid] if seat is not None else [])
        self.touch(gang, edited=gang.preempting_priority > priority)
        if gang.run_ended:
            self.restart(gang)
        elif not gang.pods and gang.facts is not None and gang.plain:
            self.drop_gang(gang)

    def restart(self, gang: Gang) -> None:
        """The gang's run is over: it loses its permit, and its pending members start whole."""
        gang.restart()
        self.touch(gang, edited=True)
        self.touch_partners(gang)

    def release(self, gang: Gang, uids: Iterable[str]) -> None:
        """Release reservations of a gang's pods that end without a bound pod (I5)."""
        uids = list(uids)
        if uids:
            self._freed(EventKind.RESERVATION_RELEASED, self.ledger.release(uids))
            self.touch(gang)

    def lose_seat(self, gang: Gang, uid: str) -> None:
        """A member cannot be bound to its node: it is to be placed again."""
        gang.lose_seat(uid)
        self.release(gang, [uid])
        self.touch(gang, edited=True)
        self._put_pod(gang.pods[uid])  # it may belong to another gang by now, or not be able to run

    def lose_bind(self, gang: Gang, uid: str) -> None:
        """A bind is lost: the member is to be placed again, under the gang's permit if it has one."""
        self.lose_seat(gang, uid)
        if not gang.permit.granted:
            gang.forget_lost()

    @property
    def doubtful(self) -> bool:
        """`take_doubtful` returns gangs."""
        return bool(self._doubtful)

    def take_doubtful(self) -> list[Gang]:
        """Gangs of which a bound pod was shown without a node since the last call."""
        doubtful = list(self._doubtful)
        self._doubtful.clear()
        return doubtful

    def forget_pod(self, uid: str) -> None:
        """The API server reports that the pod is gone, before cluster-state does."""
        self._drop_pod(uid)
        self._freed(EventKind.CAPACITY_FREED, self.ledger.forget([uid]))

    def bound_elsewhere(self, gang: Gang, uid: str, node: str) -> None:
        """The API server reports that another scheduler bound the pod to this node."""
        self._freed(EventKind.RESERVATION_RELEASED, self.ledger.reserve([gang.acknowledge(uid, node)]))

    def _freed(self, kind: EventKind, nodes: Collection[str]) -> None:
        if nodes:
            self._wake(ClusterEvent(kind, nodes))

    # -- gangs

    def _put_gang(self, facts: GangFacts) -> None:
        facts = _with_bounded_wait(facts, self._rules.max_waiting_time_seconds)
        gang = self.gangs.get(facts.id)
        if gang is not None and gang.facts is not None and self._reborn(gang, facts):
            gang = self._begin_anew(gang)
        if gang is None:
            gang = self._new_gang(facts.id)
        before = gang.facts
        if before is not None and before.group != facts.group:
            self.touch_partners(gang)
        gang.facts = facts
        gang.constraints = self.trees.constraints_of(facts)
        if before is None or before.group != facts.group:
            if before is not None:
                self._leave_partners(before)
            for id_ in facts.group:
                self._partners[id_].add(facts.id)
        if before is None or _declared(before) != _declared(facts):
            self.touch(gang, edited=True)
            self.touch_partners(gang)
            if before is None or (before.group, before.problems) != (facts.group, facts.problems):
                self._outdated.update(dict.fromkeys(self._partners.get(facts.id, ())))
        else:
            self.touch(gang)

    @staticmethod
    def _reborn(gang: Gang, facts: GangFacts) -> bool:
        """The gang was deleted and declared anew, and no pod of the former incarnation is left."""
        lives = gang.member_count or gang.eviction.pods or gang.hold.marked or gang.hold.marking
        return gang.facts is not None and gang.facts.incarnation != facts.incarnation and not lives

    def _begin_anew(self, gang: Gang) -> Gang:
        """Replace the gang by a new one that takes over the ended and leaving pods of its name."""
        pods = list(gang.pods.values())
        self.drop_gang(gang)
        gang = self._new_gang(gang.id)
        for pod in pods:
            self.gang_of[pod.uid] = gang
            gang.put_pod(pod)
            if pod.group_uid:
                self.ledger.devices.put_group_pod(None, pod)
        return gang

    def drop_gang(self, gang: Gang) -> None:
        """Forget the gang and release its reservations."""
        self.release(gang, [*gang.seats, *gang.acknowledged])
        gang.drop_seats()
        for uid, pod in gang.pods.items():
            if self.gang_of.get(uid) is gang:
                del self.gang_of[uid]
                if pod.group_uid:
                    self.ledger.devices.put_group_pod(pod, None)
        if self.gangs.get(gang.id) is gang:
            del self.gangs[gang.id]
        self._leave_group(gang)
        self.touch_partners(gang)
        self._outdated.update(dict.fromkeys(self._partners.get(gang.id, ())))
        if gang.facts is not None:
            self._leave_partners(gang.facts)
        self.touched.pop(gang, None)
        self._displaced.pop(gang, None)
        self.gone.append(gang)

    def touch_partners(self, gang: Gang) -> None:
        """Have the gangs reconciled that declare this gang in their group, and that it declares: the others cannot
        start together with it, whatever they declare, and must cost it nothing.
        """
        declaring = self._partners.get(gang.id, ())
        for id_ in gang.facts.group if gang.facts is not None else ():
            if id_ in declaring and id_ != gang.id and (partner := self.gangs.get(id_)) is not None:
                self.touch(partner, edited=True)

    def touch_outdated(self) -> None:
        """Have some of the gangs reconciled that declare a changed gang which does not declare them."""
        if not self._outdated:
            return
        for id_ in list(islice(self._outdated, MAX_OUTDATED)):
            del self._outdated[id_]
            if (gang := self.gangs.get(id_)) is not None:
                self.touch(gang)

    @property
    def outdated(self) -> bool:
        """`touch_outdated` has something to do."""
        return bool(self._outdated)

    def _leave_partners(self, facts: GangFacts) -> None:
        for id_ in facts.group:
            self._partners[id_].discard(facts.id)
            if not self._partners[id_]:
                del self._partners[id_]

    # -- groups

    def settled(self, group: Group) -> None:
        """The solve or write of the group has ended: reconcile its gangs, and gangs that wait to be regrouped."""
        self.touch_group(group)
        for gang in self._displaced:
            self.touch(gang, edited=True)

    def regroup(self, gang: Gang) -> None:
        """Move the gang to the group that it belongs to, unless a solve or write is under way for either group: then
        the gang is misplaced, and not tried, until that has ended.
        """
        self._displaced.pop(gang, None)
        group_id = self._group_id(gang)
        if gang.group.id == group_id:
            return
        group = self.groups.get(group_id)
        if gang.group.busy or (group is not None and group.busy):
            self._displaced[gang] = None
            return
        self._leave_group(gang)
        group = self.groups.setdefault(group_id, Group(group_id))
        group.gangs.append(gang)
        group.inherit_pause(gang)
        gang.group = group
        for member in group.gangs:
            self.touch(member, edited=True)

    def in_place(self, group: Group, gangs: Sequence[Gang] | None = None) -> bool:
        """All gangs of the group, or these, belong to it, and no gang that belongs to it is in another group. One below
        the same composite may be: it is not needed, or missed (`why_not_yet`).
        """
        started: dict[str, Children] = {}
        for gang in group.gangs if gangs is None else gangs:
            if self._group_id(gang, started) != group.id:
                return False
            if composites_of(gang):
                continue
            for id_ in gang.facts.group if gang.facts is not None else ():
                partner = self.gangs.get(id_)
                if partner is not None and not partner.permit.granted and partner.group is not group:
                    return group.id == gang.id  # a gang alone: the pre-enqueue check names what its group lacks
        return True

    def check_readiness(self, group: Group) -> None:
        """Run the pre-enqueue check of the group."""
        lack = self.why_not_ready(group)
        group.not_ready = lack.message if lack is not None else None
        group.not_ready_wait = lack.wait if lack is not None else None

    def why_not_ready(self, group: Group, gangs: Sequence[Gang] | None = None) -> Lack | None:
        """Why the group, or only these gangs of it, fail the pre-enqueue check; None: they pass."""
        gangs = group.gangs if gangs is None else gangs
        if not self.in_place(group, gangs):
            return Lack(Wait.GROUP_INCOMPLETE, "its gang group is changing")
        if group.preemption.yields_to is not None:
            others = " and ".join(f"gang {gang.label}" for gang in group.preemption.yields_to.gangs)
            message = f"it gave its places to {others}, and is tried again when that has started or timed out"
            return Lack(Wait.TURN, message)
        return why_not_yet(gangs, self.gangs, self.trees, self.ledger, self.gang_of)

    def _group_id(self, gang: Gang, started: dict[str, Children] | None = None) -> str:
        """The group to which the gang belongs. `started`: children of trees that were started, by root, as far as they
        are known; entries are added.
        """
        facts = gang.facts
        if gang.permit.granted or facts is None:
            return gang.id
        if facts.composites:
            if why_not_alone(gang, self.gangs, self.trees, self.ledger, self.gang_of) is not None:
                return gang.id  # the others may start without it
            tree, known = facts.composites[0].name, started if started is not None else {}
            if tree not in known:
                known[tree] = started_children(gang, self.gangs)
            root = root_to_start(gang, known[tree])
            return f"group/{root.name}" if root is not None else gang.id
        if len(facts.group) < 2 or not groups_agree(gang, self.gangs):
            return gang.id
        return f"group/{facts.group[0]}"

    def _new_gang(self, gang_id: str) -> Gang:
        group = Group(gang_id)
        run_time, trusts = self.run_times.of(gang_id), self._rules.trust_declared_priority
        gang = Gang(gang_id, group, run_time=run_time, trusts_declarations=trusts)
        group.gangs.append(gang)
        self.groups[gang_id] = group
        self.gangs[gang_id] = gang
        return gang

    def _leave_group(self, gang: Gang) -> None:
        group = gang.group
        group.gangs.remove(gang)
        if not group.gangs:
            self.disbanded.append(group)
            if self.groups.get(group.id) is group:
                del self.groups[group.id]
        else:
            for other in group.gangs:
                self.touch(other, edited=True)


def _without(known: Iterable[str], present: Iterable[str]) -> tuple[str, ...]:
    """Known entries that are not present."""
    present = set(present)
    return tuple(each for each in known if each not in present)


def _declared(facts: GangFacts) -> GangFacts:
    """The facts on which a gang's start depends. Its terms name the oldest pod, and a failure to create pods is only
    reported.
    """
    return replace(facts, terms=(), creation_failure="")


def _with_bounded_wait(facts: GangFacts, most: float) -> GangFacts:
    """The declaration with a waiting-time of at most this many seconds, and a warning if it declares more."""
    if facts.mode is not GangMode.NON_STRICT or facts.waiting_time_seconds <= most:
        return facts
    declared = f"{facts.waiting_time_seconds:.0f} s"
    warning = f"waiting-time {declared} is more than the cluster allows (max-waiting-time); {most:g} s is used"
    problems = (*facts.problems, Problem(Severity.WARNING, warning))
    return replace(facts, waiting_time_seconds=most, problems=problems)
