"""Reasons of pods to wait for their claims."""

from collections.abc import Collection, Mapping

from muster.clusterstate.claim_users import ClaimUsers, Use
from muster.clusterstate.storage_objects import ClaimId, StorageObjects
from muster.gangs.quoting import quoted
from muster.kube.api_resources import CLAIMS, STORAGE_CLASSES, VOLUMES
from muster.kube.volume_facts import ClaimFacts, ClaimOfPod


class ClaimObstacles:
    """Reasons why pods cannot use their claims; read from other modules, nothing is kept (I11)."""

    def __init__(self, objects: StorageObjects, users: Mapping[ClaimId, ClaimUsers], uses: Mapping[str, Use]) -> None:
        """`users`: of claims; `uses`: of pods, by uid."""
        self._objects, self._users, self._uses = objects, users, uses
        self._unread: Collection[str] = ()

    def unread(self, kinds: Collection[str]) -> None:
        """Set the kinds that cannot be read."""
        self._unread = kinds

    def missing(self, claim: ClaimOfPod) -> str:
        """Why a pod waits for a claim that is not known."""
        name = quoted(claim.name)
        if CLAIMS.kind in self._unread:
            return f"PersistentVolumeClaim {name} is not known: {no_right(CLAIMS.kind)}"
        if claim.ephemeral:
            return f"waits for PersistentVolumeClaim {name} to be created for its ephemeral volume"
        return f"PersistentVolumeClaim {name} does not exist"

    def obstacle(self, use: Use, of_pod: ClaimOfPod, claim: ClaimFacts) -> str:
        """Why a pod may not use a claim yet; empty if it may."""
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
        facts = self._objects.volumes.get(name)
        if facts is not None:
            return f"PersistentVolume {quoted(name)} of {what}: {facts.problem}" if facts.problem else ""
        why = no_right(VOLUMES.kind) if VOLUMES.kind in self._unread else "it does not exist"
        return f"PersistentVolume {quoted(name)} of {what} is not known: {why}"

    def _wrong_with_static(self, waits: str, name: str, claim: ClaimFacts, id_: ClaimId) -> str:
        """Why no volume is chosen for a claim of a class without provisioner; empty if one will be."""
        obstacle = ""
        if claim.needs.has_selector:
            obstacle = "its selector is not supported with a StorageClass without provisioner"
        elif len(self._users[id_]) > 1:
            obstacle = "several pods use it, so that no volume is chosen for one of them"
        return f"{waits}; {obstacle} ({name}): bind it to a volume by its spec.volumeName" if obstacle else ""

    def _wrong_with_unbound(self, what: str, claim: ClaimFacts, id_: ClaimId) -> str:
        waits = f"waits for {what} to be bound"
        if claim.volume or not claim.storage_class:
            return waits
        name, facts = quoted(claim.storage_class), self._objects.classes.get(claim.storage_class)
        if facts is None:
            unread = STORAGE_CLASSES.kind in self._unread
            why = no_right(STORAGE_CLASSES.kind) if unread else "it does not exist"
            return f"{waits}; its StorageClass {name} is not known: {why}"
        if not facts.waits:
            return waits
        if not facts.provisions:
            return self._wrong_with_static(waits, name, claim, id_)
        return f"StorageClass {name} of {what}: {facts.problem}" if facts.problem else ""

    def _holder(self, id_: ClaimId) -> Use:
        """The pod that holds a ReadWriteOncePod claim."""
        return self._uses[self._users[id_].first]


def no_right(kind: str) -> str:
    """Why a kind is unknown."""
    return f"cluster-state has no right to list and watch {kind}, or the API server does not serve them"
