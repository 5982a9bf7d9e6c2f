"""Claims, volumes and storage classes, and the nodes that they allow for the pods that use them."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from muster.clusterstate.attached_volumes import AttachedVolumes, AttachLimits, Attachment, Attachments
from muster.gangs.facts import Amounts
from muster.gangs.quoting import quoted
from muster.gangs.volume_resources import attachments
from muster.kube.api_resources import CLAIMS, STORAGE_CLASSES, VOLUMES
from muster.kube.csi_facts import CSINode
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
    """Demands of pods' claims. Methods return uids of the pods whose demands may have changed."""

    def __init__(self) -> None:
        self._claims: dict[_ClaimId, ClaimFacts] = {}
        self._volumes: dict[str, VolumeFacts] = {}
        self._classes: dict[str, StorageFacts] = {}
        self._names: dict[str, _ClaimId] = {}  # uid of a claim, volume or class -> namespace and name
        self._of_volume: dict[str, set[_ClaimId]] = {}
        self._uses: dict[str, Use] = {}
        self._users: dict[_ClaimId, set[str]] = {}
        self._unread: Collection[str] = ()
        self._limits = AttachLimits()
        self._attached = AttachedVolumes(self._limits)
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
            "pods_with_attached_volumes": len(self._attached),
        }

    # -- pods

    def use(self, use: Use) -> set[str]:
        """Add or update a pod that uses claims."""
        before = self._uses.get(use.uid)
        if use == before:
            return set()
        changed = self.release(use.uid)
        self._uses[use.uid] = use
        for each in use.claims:
            id_ = (use.namespace, each.name)
            self._users.setdefault(id_, set()).add(use.uid)
            changed |= self._rivals(id_) | self._sharers(id_, 1)
        self._attach(use)
        return changed

    def release(self, uid: str) -> set[str]:
        """A pod was removed, has ended, or uses no claims."""
        use = self._uses.pop(uid, None)
        changed: set[str] = set()
        if use is None:
            return changed
        self._disturbed |= self._attached.put(uid, "", ())
        for each in use.claims:
            id_ = (use.namespace, each.name)
            self._users[id_].discard(uid)
            changed |= self._rivals(id_) | self._sharers(id_, 0)
            if not self._users[id_]:
                del self._users[id_]
        return changed

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
                topologies = self._classes[claim.storage_class].topologies
                if topologies is not None:
                    terms.add(topologies)
                if claim.selected_node:
                    terms.add(on_node(claim.selected_node))
        volumes = tuple(sorted(terms, key=msgspec.json.encode))
        return Demands(volumes, tuple(waiting), "; ".join(problems), self.requests(uid))

    # -- attach limits

    def requests(self, uid: str) -> Amounts:
        """What a pod requests of the resources that stand for volumes."""
        use = self._uses.get(uid)
        if use is None:
            return ()
        counted = Counter(each.driver for each in self._attach(use) if each.counted)
        return tuple(sorted((attachments(driver), count) for driver, count in counted.items()))

    def offered(self, node: str) -> Amounts:
        """What a node offers of the resources that stand for volumes."""
        return self._attached.offered(node)

    @property
    def disturbs_nodes(self) -> bool:
        """Some node may offer other amounts than at the last call of `take_disturbed`."""
        return self._all_disturbed or bool(self._disturbed)

    def take_disturbed(self, nodes: Iterable[str]) -> Iterable[str]:
        """Which of all nodes may offer other amounts than at the last call."""
        disturbed = list(nodes) if self._all_disturbed else self._disturbed
        self._disturbed, self._all_disturbed = set(), False
        return disturbed

    def put_csi_node(self, csi_node: CSINode) -> set[str]:
        changed, drivers = self._limits.put(csi_node)
        return self._limits_changed(csi_node.metadata.name if changed else "", drivers)

    def drop_csi_node(self, uid: str) -> set[str]:
        return self._limits_changed(*self._limits.drop(uid))

    def _limits_changed(self, node: str, drivers: set[str]) -> set[str]:
        """`drivers`: with another smallest limit, or the first or no limit, which concerns all nodes."""
        if node:
            self._disturbed.add(node)
        if not drivers:
            return set()
        self._all_disturbed = True
        return self._users_of(
            id_ for id_ in self._users if (at := self._attachment(id_)) is not None and at[0] in drivers
        )

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

    def unread(self, kinds: Collection[str]) -> set[str]:
        """Set the kinds that cannot be read."""
        self._unread = kinds
        return set(self._uses)

    def put_claim(self, claim: PersistentVolumeClaim) -> set[str]:
        metadata, facts = claim.metadata, claim_facts(claim)
        id_ = (metadata.namespace, metadata.name)
        before = self._claims.get(id_)
        self._names[facts.uid] = id_
        if facts == before:
            return set()
        self._forget_volume_of(id_, before)
        self._claims[id_] = facts
        if facts.volume:
            self._of_volume.setdefault(facts.volume, set()).add(id_)
        return self._users_of([id_])

    def drop_claim(self, uid: str) -> set[str]:
        id_ = self._names.pop(uid, None)
        if id_ is None or (facts := self._claims.get(id_)) is None or facts.uid != uid:
            return set()
        self._forget_volume_of(id_, facts)
        del self._claims[id_]
        return self._users_of([id_])

    def put_volume(self, volume: PersistentVolume) -> set[str]:
        name, facts = volume.metadata.name, volume_facts(volume)
        before = self._volumes.get(name)
        self._volumes[name] = facts
        self._names[facts.uid] = ("", name)
        if facts.problem and (before is None or before.problem != facts.problem):
            _log.warning("volume_partly_invalid", volume=name, problem=facts.problem)
        return self._users_of(self._of_volume.get(name, ())) if facts != before else set()

    def drop_volume(self, uid: str) -> set[str]:
        _, name = self._names.pop(uid, ("", ""))
        facts = self._volumes.get(name)
        if facts is None or facts.uid != uid:
            return set()
        del self._volumes[name]
        return self._users_of(self._of_volume.get(name, ()))

    def put_class(self, storage_class: StorageClass) -> set[str]:
        name, facts = storage_class.metadata.name, storage_facts(storage_class)
        before = self._classes.get(name)
        self._classes[name] = facts
        self._names[facts.uid] = ("", name)
        return self._users_of_class(name) if facts != before else set()

    def drop_class(self, uid: str) -> set[str]:
        _, name = self._names.pop(uid, ("", ""))
        facts = self._classes.get(name)
        if facts is None or facts.uid != uid:
            return set()
        del self._classes[name]
        return self._users_of_class(name)

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
        return self._wrong_with_unbound(what, claim)

    def _wrong_with_volume(self, what: str, name: str) -> str:
        facts = self._volumes.get(name)
        if facts is not None:
            return f"PersistentVolume {quoted(name)} of {what}: {facts.problem}" if facts.problem else ""
        why = no_right(VOLUMES.kind) if VOLUMES.kind in self._unread else "it does not exist"
        return f"PersistentVolume {quoted(name)} of {what} is not known: {why}"

    def _wrong_with_unbound(self, what: str, claim: ClaimFacts) -> str:
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
            return (
                f"{waits}; its StorageClass {name} has no provisioner and waits for a first consumer: choosing among "
                "pre-created volumes is not supported yet, so bind the claim to one by its spec.volumeName"
            )
        return f"StorageClass {name} of {what}: {facts.problem}" if facts.problem else ""

    def _holder(self, id_: _ClaimId) -> Use:
        """The pod that holds a ReadWriteOncePod claim: a pod on a node, else the oldest one."""
        return min((self._uses[uid] for uid in self._users[id_]), key=lambda use: (not use.node, use.since, use.uid))

    # -- affected pods

    def _rivals(self, id_: _ClaimId) -> set[str]:
        claim = self._claims.get(id_)
        return set(self._users[id_]) if claim is not None and claim.one_pod_only else set()

    def _sharers(self, id_: _ClaimId, added: int) -> set[str]:
        """All users of a claim if one more or less changes whether its volume is counted."""
        at = self._attachment(id_) if self._limits.drivers else None
        smallest = self._limits.smallest(at[0]) if at is not None else None
        if smallest is None or len(self._users[id_]) - added != max(1, smallest):
            return set()
        return set(self._users[id_])

    def _users_of(self, ids: Iterable[_ClaimId]) -> set[str]:
        return {uid for id_ in ids for uid in self._users.get(id_, ())}

    def _users_of_class(self, name: str) -> set[str]:
        return self._users_of(id_ for id_ in self._users if self._is_of_class(id_, name))

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
