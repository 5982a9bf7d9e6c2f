"""Claims, volumes and storage classes, and the nodes that they allow for the pods that use them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from muster.clusterstate.attached_volumes import AttachedVolumes, AttachLimits, Attachment, Attachments
from muster.clusterstate.static_volumes import StaticVolumes
from muster.clusterstate.storage_capacity import StorageCapacities
from muster.gangs.facts import Amounts, NodeFacts, StaticClaim, StaticVolume
from muster.gangs.node_regions import NodeRegions
from muster.gangs.quoting import quoted
from muster.gangs.volume_resources import attachments, storage_capacity
from muster.kube.api_resources import CLAIMS, STORAGE_CLASSES, VOLUMES
from muster.kube.csi_facts import CSIDriver, CSINode, CSIStorageCapacity
from muster.kube.volume_facts import (
    ClaimFacts,
    ClaimOfPod,
    NodeTerms,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageFacts,
    VolumeFacts,
    claim_facts,
    on_node,
    storage_facts,
    volume_facts,
)

_log = structlog.get_logger(__name__)


class Use(Struct, frozen=True, gc=False):
    """A pod that uses claims. `node`: of a pod that is seated; `since` orders the pods that compete for a
    ReadWriteOncePod claim.
    """

    uid: str
    namespace: str
    name: str
    claims: tuple[ClaimOfPod, ...]
    node: str
    since: int


class ClaimUsers:
    """Pods that use a claim, those on nodes before others, older before newer. Entries end with the use (I11)."""

    def __init__(self) -> None:
        self._order: list[tuple[bool, int, str]] = []

    def __len__(self) -> int:
        """Number of pods."""
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        """Uids of the pods."""
        return (uid for _, _, uid in self._order)

    @property
    def first(self) -> str:
        """The pod that holds the claim if one pod only may use it; empty without any."""
        return self._order[0][2] if self._order else ""

    def add(self, use: Use) -> None:
        place = (not use.node, use.since, use.uid)
        at = bisect_left(self._order, place)
        if self._order[at : at + 1] != [place]:
            self._order.insert(at, place)

    def discard(self, use: Use) -> None:
        place = (not use.node, use.since, use.uid)
        at = bisect_left(self._order, place)
        if self._order[at : at + 1] == [place]:
            del self._order[at]


class Demands(Struct, frozen=True):
    """Node selector terms of a pod's volumes, claims that are bound only after placement, why the pod must wait, and
    the resources that stand for its volumes.
    """

    volumes: tuple[NodeTerms, ...] = ()
    claims: tuple[str, ...] = ()
    problem: str = ""
    requests: Amounts = ()


NO_DEMANDS: Final = Demands()
_ClaimId = tuple[str, str]
"""Namespace and name."""


class Volumes:
    """Demands of pods' claims. Pods whose demands and nodes whose offers may have changed are collected until they are
    taken; a pod, class or driver is collected once, however many changes concern it.
    """

    def __init__(self) -> None:
        self._claims: dict[_ClaimId, ClaimFacts] = {}
        self._volumes: dict[str, VolumeFacts] = {}
        self._classes: dict[str, StorageFacts] = {}
        self._names: dict[str, _ClaimId] = {}  # uid of a claim, volume or class -> namespace and name
        self._of_volume: dict[str, set[_ClaimId]] = {}
        self._uses: dict[str, Use] = {}
        self._users: dict[_ClaimId, ClaimUsers] = {}
        self._unread: Collection[str] = ()
        self._limits = AttachLimits()
        self._attached = AttachedVolumes(self._limits)
        self._regions = NodeRegions()
        self._capacities = StorageCapacities(self._regions)
        self._static = StaticVolumes(self._regions)
        self._counted: dict[str, tuple[VolumeFacts, bool]] = {}  # volumes of static classes, and whether they are free
        self._reserved: dict[_ClaimId, set[str]] = {}  # volumes that are reserved for a claim
        self.static_volumes: dict[str, StaticVolume] = {}
        self.static_claims: dict[str, StaticClaim] = {}
        self.changed_volumes: dict[str, StaticVolume | None] = {}
        self.changed_claims: dict[str, StaticClaim | None] = {}
        self._stale: set[str] = set()  # pods whose demands may have changed
        self._stale_classes: set[str] = set()  # of whose claims the demands may have changed
        self._stale_drivers: set[str] = set()
        self._disturbed: set[str] = set()  # nodes whose offers may have changed
        self._all_disturbed = False

    def __len__(self) -> int:
        """Number of claims that exist or that pods use."""
        return len(self._claims.keys() | self._users.keys())

    def sizes(self) -> dict[str, int]:
        """Number of entries by kind."""
        return {
            "claims": len(self),
            "attach_limits": len(self._limits),
            "storage_capacities": len(self._capacities),
            "static_volumes": len(self._counted),
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
            self._note_claim(id_)
            self._note_users(id_, holder, 1)
        self._attach(use)

    def release(self, uid: str) -> None:
        """A pod was removed, has ended, or uses no claims."""
        use = self._uses.pop(uid, None)
        if use is None:
            return
        self._disturbed |= self._attached.put(uid, "", ())
        for each in use.claims:
            id_ = (use.namespace, each.name)
            holder = self._users[id_].first
            self._users[id_].discard(use)
            self._note_users(id_, holder, 0)
            if not self._users[id_]:
                del self._users[id_]
            self._note_claim(id_)

    def demands(self, uid: str) -> Demands:
        """The demands of a pod's claims."""
        use = self._uses.get(uid)
        if use is None:
            return NO_DEMANDS
        terms: set[NodeTerms] = set()
        waiting, problems = [], []
        for each in use.claims:
            claim = self._claims.get((use.namespace, each.name))
            problem = self._missing(each) if claim is None else self._obstacle(use, each, claim)
            if problem or claim is None:
                problems.append(problem)
            elif claim.bound:
                terms.update(self._volumes[claim.volume].demands)
            else:
                waiting.append(each.name)
                name = claim.storage_class
                topologies = self._classes[name].topologies
                if topologies is not None:
                    terms.add(topologies)
                if claim.selected_node:
                    terms.add(on_node(claim.selected_node))
                elif self._is_static(name):
                    for volume in self._own_volumes((use.namespace, each.name)):
                        terms.update(self._volumes[volume].demands)
                elif self._publishes_capacity(name) and self._capacities.limits_size(name):
                    terms.add(self._capacities.large_enough(name, claim.needs.size_bytes))
        volumes = tuple(sorted(terms, key=msgspec.json.encode))
        return Demands(volumes, tuple(waiting), "; ".join(problems), self.requests(uid))

    # -- attach limits

    def requests(self, uid: str) -> Amounts:
        """Requests of a pod for the resources that stand for volumes."""
        use = self._uses.get(uid)
        if use is None:
            return ()
        amounts = Counter(attachments(each.driver) for each in self._attach(use) if each.counted)
        for each in use.claims:
            claim = self._claims.get((use.namespace, each.name))
            if claim is None or claim.volume:
                continue
            name, needs = claim.storage_class, claim.needs
            if self._is_static(name):
                for resource, amount in self._static.requested(name, needs):
                    amounts[resource] += amount
            elif self._publishes_capacity(name):
                amounts[storage_capacity(name)] += needs.size_bytes
        return tuple(sorted((+amounts).items()))

    def offered(self, node: str) -> tuple[Amounts, dict[str, str]]:
        """Amounts that a node offers of the resources that stand for volumes, and labels that do."""
        attachable = self._attached.offered(node)
        if not self._regions.regions(node):
            return attachable, {}
        capacity, labels = self._capacities.offered(node, self._publishes_capacity)
        return (*attachable, *capacity, *self._static.offered(node, self._is_static)), labels

    @property
    def has_changes(self) -> bool:
        """Volumes or claims to stream have changed."""
        return bool(self.changed_volumes or self.changed_claims)

    def take_stale(self) -> Collection[str]:
        """Pods whose demands may have changed since the last call."""
        stale, self._stale = self._stale, set()
        if self._stale_classes or self._stale_drivers:
            classes, self._stale_classes = self._stale_classes, set()
            drivers, self._stale_drivers = self._stale_drivers, set()
            for id_, users in self._users.items():
                claim = self._claims.get(id_)
                if claim is None:
                    continue
                if claim.storage_class in classes or (
                    drivers and (at := self._attachment(id_)) is not None and at[0] in drivers
                ):
                    stale.update(users)
        return stale

    def take_disturbed(self, nodes: Iterable[str]) -> Collection[str]:
        """Which of all nodes may offer other amounts than at the last call."""
        disturbed = list(nodes) if self._all_disturbed else self._disturbed
        self._disturbed, self._all_disturbed = set(), False
        return disturbed

    def put_csi_node(self, csi_node: CSINode) -> None:
        changed, drivers = self._limits.put(csi_node)
        self._limits_changed(csi_node.metadata.name if changed else "", drivers)

    def drop_csi_node(self, uid: str) -> None:
        self._limits_changed(*self._limits.drop(uid))

    # -- nodes, and the storage of drivers

    def put_node(self, node: NodeFacts) -> None:
        if self._regions.put_node(node):
            self._disturbed.add(node.name)

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
        self._disturbed |= nodes
        self._stale_classes |= classes
        if classes:
            self._all_disturbed = True

    def _drivers_changed(self, drivers: set[str]) -> None:
        """`drivers`: that publish capacity now and did not, or the other way round."""
        if drivers:
            self._all_disturbed = True
            self._stale_classes.update(name for name, each in self._classes.items() if each.driver in drivers)

    def _publishes_capacity(self, storage_class: str) -> bool:
        facts = self._classes.get(storage_class)
        return facts is not None and facts.waits and self._capacities.publishes(facts.driver)

    # -- static volumes

    def _is_static(self, storage_class: str) -> bool:
        """Volumes of the class are chosen by the scheduler."""
        facts = self._classes.get(storage_class)
        return facts is not None and facts.waits and not facts.provisions

    def _class_changed(self, name: str) -> None:
        self._all_disturbed = True
        for volume in [each for each, facts in self._volumes.items() if facts.storage_class == name]:
            self._count_volume(volume)
        for id_ in self._users:
            if self._is_of_class(id_, name):
                self._note_claim(id_)
        self._stale_classes.add(name)

    def _claim_changed(self, id_: _ClaimId) -> None:
        self._note_stale(id_)
        for volume in list(self._reserved.get(id_, ())):
            self._count_volume(volume)
        self._note_claim(id_)

    def _note_claim(self, id_: _ClaimId) -> None:
        """Stream a claim while pods use it and it needs a static volume."""
        claim, key, after = self._claims.get(id_), "/".join(id_), None
        if claim is not None and not claim.volume and id_ in self._users and self._is_static(claim.storage_class):
            needs = claim.needs
            after = StaticClaim(key, claim.storage_class, needs.size_bytes, needs.access_modes, needs.volume_mode)
        if after == self.static_claims.get(key):
            return
        self.changed_claims[key] = after
        if after is None:
            del self.static_claims[key]
        else:
            self.static_claims[key] = after

    def _note_reservation(self, name: str, before: VolumeFacts | None, after: VolumeFacts | None) -> None:
        if before is not None and before.reserved_for is not None:
            volumes = self._reserved[before.reserved_for[:2]]
            volumes.discard(name)
            if not volumes:
                del self._reserved[before.reserved_for[:2]]
        if after is not None and after.reserved_for is not None:
            self._reserved.setdefault(after.reserved_for[:2], set()).add(name)

    def _count_volume(self, name: str) -> None:
        """Count a volume of a static class as it is now. Pods may request other sizes then."""
        facts = self._volumes.get(name)
        after = None if facts is None or not self._is_static(facts.storage_class) else (facts, self._is_free(facts))
        before = self._counted.pop(name, None)
        if after is not None:
            self._counted[name] = after
        if before == after:
            return
        for each, sign in ((after, 1), (before, -1)):
            if each is not None and self._static.add(each[0], sign):
                self._stale_classes.add(each[0].storage_class)
                self._all_disturbed = True
            if each is not None and each[1]:
                self._disturbed.update(self._static.free(each[0], sign))
        self._stream_volume(name, after)

    def _stream_volume(self, name: str, counted: tuple[VolumeFacts, bool] | None) -> None:
        after = None
        if counted is not None and counted[1]:
            facts, has = counted[0], counted[0].has
            after = StaticVolume(
                name,
                facts.storage_class,
                has.size_bytes,
                has.access_modes,
                has.volume_mode,
                facts.demands,
                "/".join(facts.reserved_for[:2]) if facts.reserved_for is not None else "",
            )
        if after == self.static_volumes.get(name):
            return
        self.changed_volumes[name] = after
        if after is None:
            del self.static_volumes[name]
        else:
            self.static_volumes[name] = after

    def _own_volumes(self, id_: _ClaimId) -> list[str]:
        """The volume that is reserved for an unbound claim, if any: the claim will be bound to it."""
        return sorted(name for name in self._reserved.get(id_, ()) if self._is_free(self._volumes[name]))[:1]

    def _is_free(self, volume: VolumeFacts) -> bool:
        """No claim has the volume. A volume that is reserved counts until its claim is bound, as the claim does."""
        if not volume.available or volume.reserved_for is None:
            return volume.available
        namespace, name, uid = volume.reserved_for
        claim = self._claims.get((namespace, name))
        return claim is not None and not claim.volume and uid in ("", claim.uid)

    def _limits_changed(self, node: str, drivers: set[str]) -> None:
        """`drivers`: with another smallest limit, or the first or no limit, which concerns all nodes."""
        if node:
            self._disturbed.add(node)
        if drivers:
            self._all_disturbed = True
            self._stale_drivers |= drivers

    def _attach(self, use: Use) -> Attachments:
        """The volumes of limited drivers that a pod needs attached; on its node, if it has one, they are.

        A volume that more pods share than the smallest limit allows is not counted in their requests: they might never
        fit on one node, though they need it once. Where they are, it is counted.
        """
        found: dict[tuple[str, str], Attachment] = {}
        for each in use.claims if self._limits.drivers else ():
            id_ = (use.namespace, each.name)
            at = self._attachment(id_)
            if at is not None and (smallest := self._limits.smallest(at[0])) is not None:
                found[at] = Attachment(*at, counted=len(self._users[id_]) <= max(1, smallest))
        needed = tuple(found.values())
        self._disturbed |= self._attached.put(use.uid, use.node, needed)
        return needed

    def _attachment(self, id_: _ClaimId) -> tuple[str, str] | None:
        """Driver and handle of a claim's volume; the claim in place of the handle while it has no volume."""
        claim = self._claims.get(id_)
        if claim is None:
            return None
        if claim.volume:
            volume = self._volumes.get(claim.volume)
            return (volume.driver, volume.handle) if volume is not None and volume.driver else None
        storage_class = self._classes.get(claim.storage_class)
        return (storage_class.driver, "/".join(id_)) if storage_class is not None and storage_class.provisions else None

    # -- objects

    def unread(self, kinds: Collection[str]) -> None:
        """Set the kinds that cannot be read."""
        self._unread = kinds
        self._stale.update(self._uses)

    def put_claim(self, claim: PersistentVolumeClaim) -> None:
        metadata, facts = claim.metadata, claim_facts(claim)
        id_ = (metadata.namespace, metadata.name)
        before = self._claims.get(id_)
        self._names[facts.uid] = id_
        if facts == before:
            return
        self._forget_volume_of(id_, before)
        self._claims[id_] = facts
        if facts.volume:
            self._of_volume.setdefault(facts.volume, set()).add(id_)
        self._claim_changed(id_)

    def drop_claim(self, uid: str) -> None:
        id_ = self._names.pop(uid, None)
        if id_ is None or (facts := self._claims.get(id_)) is None or facts.uid != uid:
            return
        self._forget_volume_of(id_, facts)
        del self._claims[id_]
        self._claim_changed(id_)

    def put_volume(self, volume: PersistentVolume) -> None:
        name, facts = volume.metadata.name, volume_facts(volume)
        before = self._volumes.get(name)
        self._volumes[name] = facts
        self._names[facts.uid] = ("", name)
        if facts.problem and (before is None or before.problem != facts.problem):
            _log.warning("volume_partly_invalid", volume=name, problem=facts.problem)
        if facts == before:
            return
        self._note_reservation(name, before, facts)
        claims = {each.reserved_for[:2] for each in (before, facts) if each is not None and each.reserved_for}
        self._note_stale(*self._of_volume.get(name, ()), *claims)
        self._count_volume(name)

    def drop_volume(self, uid: str) -> None:
        _, name = self._names.pop(uid, ("", ""))
        facts = self._volumes.get(name)
        if facts is None or facts.uid != uid:
            return
        del self._volumes[name]
        self._note_reservation(name, facts, None)
        claims = () if facts.reserved_for is None else (facts.reserved_for[:2],)
        self._note_stale(*self._of_volume.get(name, ()), *claims)
        self._count_volume(name)

    def put_class(self, storage_class: StorageClass) -> None:
        name, facts = storage_class.metadata.name, storage_facts(storage_class)
        before = self._classes.get(name)
        self._classes[name] = facts
        self._names[facts.uid] = ("", name)
        if facts != before:
            self._class_changed(name)

    def drop_class(self, uid: str) -> None:
        _, name = self._names.pop(uid, ("", ""))
        facts = self._classes.get(name)
        if facts is None or facts.uid != uid:
            return
        del self._classes[name]
        self._class_changed(name)

    # -- reasons to wait

    def _missing(self, claim: ClaimOfPod) -> str:
        name = quoted(claim.name)
        if CLAIMS.kind in self._unread:
            return f"PersistentVolumeClaim {name} is not known: {no_right(CLAIMS.kind)}"
        if claim.ephemeral:
            return f"waits for PersistentVolumeClaim {name} to be created for its ephemeral volume"
        return f"PersistentVolumeClaim {name} does not exist"

    def _obstacle(self, use: Use, of_pod: ClaimOfPod, claim: ClaimFacts) -> str:
        what = f"PersistentVolumeClaim {quoted(of_pod.name)}"
        if of_pod.ephemeral and claim.controller != use.uid:
            return f"{what} was not created for the pod's ephemeral volume; delete or rename one of them"
        if claim.deleting:
            return f"{what} is being deleted"
        if claim.lost:
            return f"{what} has lost its volume {quoted(claim.volume)}"
        if claim.one_pod_only and (holder := self._holder((use.namespace, of_pod.name))).uid != use.uid:
            return f"{what} may be used by one pod at a time (ReadWriteOncePod), and pod {quoted(holder.name)} has it"
        if claim.bound:
            return self._wrong_with_volume(what, claim.volume)
        return self._wrong_with_unbound(what, claim, (use.namespace, of_pod.name))

    def _wrong_with_volume(self, what: str, name: str) -> str:
        facts = self._volumes.get(name)
        if facts is not None:
            return f"PersistentVolume {quoted(name)} of {what}: {facts.problem}" if facts.problem else ""
        why = no_right(VOLUMES.kind) if VOLUMES.kind in self._unread else "it does not exist"
        return f"PersistentVolume {quoted(name)} of {what} is not known: {why}"

    def _wrong_with_static(self, waits: str, name: str, claim: ClaimFacts, id_: _ClaimId) -> str:
        """Why no volume is chosen for a claim of a class without provisioner; empty if one will be."""
        obstacle = ""
        if claim.needs.has_selector:
            obstacle = "its selector is not supported with a StorageClass without provisioner"
        elif len(self._users[id_]) > 1:
            obstacle = "several pods use it, so that no volume is chosen for one of them"
        return f"{waits}; {obstacle} ({name}): bind it to a volume by its spec.volumeName" if obstacle else ""

    def _wrong_with_unbound(self, what: str, claim: ClaimFacts, id_: _ClaimId) -> str:
        waits = f"waits for {what} to be bound"
        if claim.volume or not claim.storage_class:
            return waits
        name, facts = quoted(claim.storage_class), self._classes.get(claim.storage_class)
        if facts is None:
            unread = STORAGE_CLASSES.kind in self._unread
            why = no_right(STORAGE_CLASSES.kind) if unread else "it does not exist"
            return f"{waits}; its StorageClass {name} is not known: {why}"
        if not facts.waits:
            return waits
        if not facts.provisions:
            return self._wrong_with_static(waits, name, claim, id_)
        return f"StorageClass {name} of {what}: {facts.problem}" if facts.problem else ""

    def _holder(self, id_: _ClaimId) -> Use:
        """The pod that holds a ReadWriteOncePod claim."""
        return self._uses[self._users[id_].first]

    # -- affected pods

    def _note_users(self, id_: _ClaimId, holder: str, added: int) -> None:
        """A claim has one pod more or less: all its pods are concerned if another one holds it, if there are several
        instead of one, or if this changes whether its volume is counted.
        """
        claim, users = self._claims.get(id_), self._users[id_]
        if claim is None:
            return
        held_anew = claim.one_pod_only and users.first != holder
        shared = not claim.bound and len(users) <= 2 and self._is_static(claim.storage_class)
        if held_anew or shared or self._crosses_limit(id_, len(users) - added):
            self._stale.update(users)

    def _crosses_limit(self, id_: _ClaimId, fewer: int) -> bool:
        """A claim with one pod more than `fewer` is not counted any more."""
        at = self._attachment(id_) if self._limits.drivers else None
        smallest = self._limits.smallest(at[0]) if at is not None else None
        return smallest is not None and fewer == max(1, smallest)

    def _note_stale(self, *ids: _ClaimId) -> None:
        for id_ in ids:
            self._stale.update(self._users.get(id_, ()))

    def _is_of_class(self, id_: _ClaimId, name: str) -> bool:
        claim = self._claims.get(id_)
        return claim is not None and claim.storage_class == name

    def _forget_volume_of(self, id_: _ClaimId, claim: ClaimFacts | None) -> None:
        if claim is not None and claim.volume:
            claims = self._of_volume[claim.volume]
            claims.discard(id_)
            if not claims:
                del self._of_volume[claim.volume]


def no_right(kind: str) -> str:
    """Why a kind is unknown."""
    return f"cluster-state has no right to list and watch {kind}, or the API server does not serve them"
