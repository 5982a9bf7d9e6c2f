"""Demands of pods for volumes, and what nodes offer for them: the parts are in modules of their own."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from muster.clusterstate.attached_volumes import AttachedVolumes, AttachLimits, Attachment, Attachments
from muster.clusterstate.claim_obstacles import ClaimObstacles
from muster.clusterstate.claim_users import ClaimUsers, Use
from muster.clusterstate.demands import NO_DEMANDS, Demands
from muster.clusterstate.stale_demands import StaleDemands
from muster.clusterstate.static_binding import StaticBinding
from muster.clusterstate.static_volumes import StaticVolumes
from muster.clusterstate.storage_capacity import StorageCapacities
from muster.clusterstate.storage_objects import ClaimId, StorageObjects, VolumeChange
from muster.gangs.counted_resources import attachments, storage_capacity
from muster.gangs.facts import Amounts, NodeFacts
from muster.gangs.node_regions import NodeRegions
from muster.gangs.quantity import INT64_MAX
from muster.gangs.quoting import listed
from muster.kube.csi_facts import CSIDriver, CSINode, CSIStorageCapacity
from muster.kube.volume_facts import NodeTerms, PersistentVolume, PersistentVolumeClaim, StorageClass, on_node

_DRIVERS_PER_WEIGHT: Final = 10
"""Limited drivers of which the offers of a node take as long as a pod's demands."""


class Volumes:
    """Demands of pods' claims. Pods whose demands and nodes whose offers may have changed are collected until they are
    taken; a pod, class or driver is collected once, however many changes concern it. Entries end with the pod (I11).
    """

    def __init__(self) -> None:
        self._objects = StorageObjects()
        self._uses: dict[str, Use] = {}
        self._users: dict[ClaimId, ClaimUsers] = {}
        self._stale = StaleDemands()
        self._obstacles = ClaimObstacles(self._objects, self._users, self._uses)
        self._limits = AttachLimits()
        self._attached = AttachedVolumes(self._limits)
        self._regions = NodeRegions()
        self._capacities = StorageCapacities(self._regions)
        self._static = StaticVolumes(self._regions)
        self.static_binding = StaticBinding(self._objects, self._users, self._static, self._stale)

    def __len__(self) -> int:
        """Number of claims that exist or that pods use."""
        return len(self._objects.claims.keys() | self._users.keys())

    def sizes(self) -> dict[str, int]:
        """Number of entries by kind."""
        return {
            "claims": len(self),
            "attach_limits": len(self._limits),
            "storage_capacities": len(self._capacities),
            "static_volumes": len(self.static_binding),
            "pods_with_attached_volumes": len(self._attached),
        }

    # -- pods

    def use(self, use: Use) -> None:
        """Add or update a pod that uses claims."""
        before = self._uses.get(use.uid)
        if use == before:
            return
        self.release(use.uid)
        self._uses[use.uid] = use
        for each in use.claims:
            id_ = (use.namespace, each.name)
            users = self._users.get(id_)
            if users is None:
                users = self._users[id_] = ClaimUsers()
            holder = users.first
            users.add(use)
            self.static_binding.note_claim(id_)
            self._note_users(id_, holder, 1)
        self._attach(use)

    def release(self, uid: str) -> None:
        """A pod was removed, has ended, or uses no claims."""
        use = self._uses.pop(uid, None)
        if use is None:
            return
        self._stale.nodes(self._attached.put(uid, "", ()))
        for each in use.claims:
            id_ = (use.namespace, each.name)
            holder = self._users[id_].first
            self._users[id_].discard(use)
            self._note_users(id_, holder, 0)
            if not self._users[id_]:
                del self._users[id_]
            self.static_binding.note_claim(id_)

    def demands(self, uid: str) -> Demands:
        """The demands of a pod's claims."""
        use = self._uses.get(uid)
        if use is None:
            return NO_DEMANDS
        terms: set[NodeTerms] = set()
        waiting, problems = [], []
        for each in use.claims:
            claim = self._objects.claims.get((use.namespace, each.name))
            problem = self._obstacles.missing(each) if claim is None else self._obstacles.obstacle(use, each, claim)
            if problem or claim is None:
                problems.append(problem)
            elif claim.bound:
                terms.update(self._objects.volumes[claim.volume].demands)
            else:
                waiting.append(each.name)
                name = claim.storage_class
                topologies = self._objects.classes[name].topologies
                if topologies is not None:
                    terms.add(topologies)
                if claim.selected_node:
                    terms.add(on_node(claim.selected_node))
                elif self._objects.is_static(name):
                    for volume in self.static_binding.own_volumes((use.namespace, each.name)):
                        terms.update(self._objects.volumes[volume].demands)
                elif self._publishes_capacity(name) and self._capacities.limits_size(name):
                    terms.add(self._capacities.large_enough(name, claim.needs.size_bytes))
        volumes = tuple(sorted(terms, key=msgspec.json.encode))
        return Demands(volumes, tuple(waiting), listed(problems), self.requests(uid))

    # -- attach limits

    def requests(self, uid: str) -> Amounts:
        """Requests of a pod for the resources that stand for volumes."""
        use = self._uses.get(uid)
        if use is None:
            return ()
        amounts = Counter(attachments(each.driver) for each in self._attach(use) if each.counted)
        for each in use.claims:
            claim = self._objects.claims.get((use.namespace, each.name))
            if claim is None or claim.volume:
                continue
            name, needs = claim.storage_class, claim.needs
            if self._objects.is_static(name):
                for resource, amount in self._static.requested(name, needs):
                    amounts[resource] += amount
            elif self._publishes_capacity(name):
                amounts[storage_capacity(name)] += needs.size_bytes
        return tuple((name, min(amount, INT64_MAX)) for name, amount in sorted((+amounts).items()))

    def offered(self, node: str) -> tuple[Amounts, dict[str, str]]:
        """Amounts that a node offers of the resources that stand for volumes, and labels that do."""
        attachable = self._attached.offered(node)
        if not self._regions.regions(node):
            return attachable, {}
        capacity, labels = self._capacities.offered(node, self._publishes_capacity)
        return (*attachable, *capacity, *self._static.offered(node, self._objects.is_static)), labels

    @property
    def weight_of_node(self) -> int:
        """Processor time of what one node offers, which increases with the number of limited drivers."""
        return 1 + len(self._limits.drivers) // _DRIVERS_PER_WEIGHT

    def take_stale_static(self) -> tuple[Collection[str], Collection[ClaimId]]:
        """Volumes and claims that may be static now, or not any more, since the last call."""
        return self._stale.take_static(self._users, self._objects)

    def take_stale_pods(self) -> Collection[str]:
        """Pods whose demands may have changed since the last call."""
        return self._stale.take_pods(self._users, self._objects)

    def take_stale_nodes(self, nodes: Iterable[str]) -> Collection[str]:
        """Nodes of these that may offer other amounts than at the last call."""
        return self._stale.take_nodes(nodes)

    def put_csi_node(self, csi_node: CSINode) -> None:
        changed, drivers = self._limits.put(csi_node)
        self._limits_changed(csi_node.metadata.name if changed else "", drivers)

    def drop_csi_node(self, uid: str) -> None:
        self._limits_changed(*self._limits.drop(uid))

    # -- nodes, and the storage of drivers

    def put_node(self, node: NodeFacts) -> None:
        if self._regions.put_node(node):
            self._stale.nodes((node.name,))

    def drop_node(self, name: str) -> None:
        self._regions.drop_node(name)

    def put_driver(self, driver: CSIDriver) -> None:
        self._drivers_changed(self._capacities.put_driver(driver))

    def drop_driver(self, uid: str) -> None:
        self._drivers_changed(self._capacities.drop_driver(uid))

    def put_segment(self, segment: CSIStorageCapacity) -> None:
        self._segments_changed(*self._capacities.put(segment))

    def drop_segment(self, uid: str) -> None:
        self._segments_changed(*self._capacities.drop(uid))

    def _segments_changed(self, nodes: set[str], classes: set[str]) -> None:
        """`classes`: that limit the size of volumes now and did not, or the other way round."""
        self._stale.nodes(nodes)
        self._stale.classes(classes)
        if classes:
            self._stale.all_nodes()

    def _drivers_changed(self, drivers: set[str]) -> None:
        """`drivers`: that publish capacity now and did not, or the other way round."""
        if drivers:
            self._stale.all_nodes()
            self._stale.classes(name for name, each in self._objects.classes.items() if each.driver in drivers)

    def _publishes_capacity(self, storage_class: str) -> bool:
        facts = self._objects.classes.get(storage_class)
        return facts is not None and facts.waits and self._capacities.publishes(facts.driver)

    # -- claims, volumes and classes

    def unread(self, kinds: Collection[str]) -> None:
        """Set the kinds that cannot be read."""
        self._obstacles.unread(kinds)
        self._stale.pods(self._uses)

    def put_claim(self, claim: PersistentVolumeClaim) -> None:
        self._claim_changed(self._objects.put_claim(claim))

    def drop_claim(self, uid: str) -> None:
        self._claim_changed(self._objects.drop_claim(uid))

    def put_volume(self, volume: PersistentVolume) -> None:
        self._volume_changed(self._objects.put_volume(volume))

    def drop_volume(self, uid: str) -> None:
        self._volume_changed(self._objects.drop_volume(uid))

    def put_class(self, storage_class: StorageClass) -> None:
        self._class_changed(self._objects.put_class(storage_class))

    def drop_class(self, uid: str) -> None:
        self._class_changed(self._objects.drop_class(uid))

    def _claim_changed(self, id_: ClaimId | None) -> None:
        if id_ is not None:
            self._note_stale(id_)
            self.static_binding.claim_changed(id_)

    def _volume_changed(self, change: VolumeChange | None) -> None:
        if change is not None:
            self._note_stale(*self._objects.claims_of(change.name), *change.claims)
            self.static_binding.volume_changed(change)

    def _class_changed(self, name: str) -> None:
        if name:
            self._stale.all_nodes()
            self._stale.classes((name,))
            self._stale.static_classes((name,))

    # -- attached volumes

    def _limits_changed(self, node: str, drivers: set[str]) -> None:
        """`drivers`: with another smallest limit, or the first or no limit, which concerns all nodes."""
        if node:
            self._stale.nodes((node,))
        if drivers:
            self._stale.all_nodes()
            self._stale.drivers(drivers)

    def _attach(self, use: Use) -> Attachments:
        """The volumes of limited drivers that a pod needs attached; on its node, if it has one, they are.

        A volume that more pods share than the smallest limit allows is not counted in their requests: they might never
        fit on one node, though they need it once. Where they are, it is counted.
        """
        found: dict[tuple[str, str], Attachment] = {}
        for each in use.claims if self._limits.drivers else ():
            id_ = (use.namespace, each.name)
            at = self._objects.attachment(id_)
            if at is not None and (smallest := self._limits.smallest(at[0])) is not None:
                found[at] = Attachment(*at, counted=len(self._users[id_]) <= max(1, smallest))
        needed = tuple(found.values())
        self._stale.nodes(self._attached.put(use.uid, use.node, needed))
        return needed

    # -- affected pods

    def _note_users(self, id_: ClaimId, holder: str, added: int) -> None:
        """A claim has one pod more or less: all its pods are concerned if another one holds it, if there are several
        instead of one, or if this changes whether its volume is counted.
        """
        claim, users = self._objects.claims.get(id_), self._users[id_]
        if claim is None:
            return
        held_anew = claim.one_pod_only and users.first != holder
        shared = not claim.bound and len(users) <= 2 and self._objects.is_static(claim.storage_class)
        if held_anew or shared or self._crosses_limit(id_, len(users) - added):
            self._stale.pods(users)

    def _crosses_limit(self, id_: ClaimId, fewer: int) -> bool:
        """A claim with one pod more than `fewer` is not counted any more."""
        at = self._objects.attachment(id_) if self._limits.drivers else None
        smallest = self._limits.smallest(at[0]) if at is not None else None
        return smallest is not None and fewer == max(1, smallest)

    def _note_stale(self, *ids: ClaimId) -> None:
        for id_ in ids:
            self._stale.pods(self._users.get(id_, ()))
