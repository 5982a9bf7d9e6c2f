"""PersistentVolumeClaims, PersistentVolumes and StorageClasses."""

from collections.abc import Collection

import structlog
from msgspec import Struct

from muster.kube.volume_facts import (
    ClaimFacts,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageFacts,
    VolumeFacts,
    claim_facts,
    storage_facts,
    volume_facts,
)

_log = structlog.get_logger(__name__)

ClaimId = tuple[str, str]
"""Namespace and name."""


class VolumeChange(Struct, frozen=True):
    """A volume was added (before: None), changed, or removed (after: None)."""

    name: str
    before: VolumeFacts | None
    after: VolumeFacts | None

    @property
    def claims(self) -> Collection[ClaimId]:
        """Claims for which the volume was or is reserved."""
        both = (self.before, self.after)
        return {each.reserved_for[:2] for each in both if each is not None and each.reserved_for is not None}


class StorageObjects:
    """Facts by name. Methods return what changed, None or empty if nothing did. Entries end with their object (I11)."""

    def __init__(self) -> None:
        self.claims: dict[ClaimId, ClaimFacts] = {}
        self.volumes: dict[str, VolumeFacts] = {}
        self.classes: dict[str, StorageFacts] = {}
        self._names: dict[str, ClaimId] = {}  # uid of a claim, volume or class -> namespace and name
        self._of_volume: dict[str, set[ClaimId]] = {}

    def put_claim(self, claim: PersistentVolumeClaim) -> ClaimId | None:
        metadata, facts = claim.metadata, claim_facts(claim)
        id_ = (metadata.namespace, metadata.name)
        before = self.claims.get(id_)
        self._names[facts.uid] = id_
        if facts == before:
            return None
        self._forget_volume_of(id_, before)
        self.claims[id_] = facts
        if facts.volume:
            self._of_volume.setdefault(facts.volume, set()).add(id_)
        return id_

    def drop_claim(self, uid: str) -> ClaimId | None:
        id_ = self._names.pop(uid, None)
        if id_ is None or (facts := self.claims.get(id_)) is None or facts.uid != uid:
            return None
        self._forget_volume_of(id_, facts)
        del self.claims[id_]
        return id_

    def put_volume(self, volume: PersistentVolume) -> VolumeChange | None:
        name, facts = volume.metadata.name, volume_facts(volume)
        before = self.volumes.get(name)
        self.volumes[name] = facts
        self._names[facts.uid] = ("", name)
        if facts.problem and (before is None or before.problem != facts.problem):
            _log.warning("volume_partly_invalid", volume=name, problem=facts.problem)
        return VolumeChange(name, before, facts) if facts != before else None

    def drop_volume(self, uid: str) -> VolumeChange | None:
        _, name = self._names.pop(uid, ("", ""))
        facts = self.volumes.get(name)
        if facts is None or facts.uid != uid:
            return None
        del self.volumes[name]
        return VolumeChange(name, facts, None)

    def put_class(self, storage_class: StorageClass) -> str:
        name, facts = storage_class.metadata.name, storage_facts(storage_class)
        before = self.classes.get(name)
        self.classes[name] = facts
        self._names[facts.uid] = ("", name)
        return name if facts != before else ""

    def drop_class(self, uid: str) -> str:
        _, name = self._names.pop(uid, ("", ""))
        facts = self.classes.get(name)
        if facts is None or facts.uid != uid:
            return ""
        del self.classes[name]
        return name

    def claims_of(self, volume: str) -> Collection[ClaimId]:
        """Claims that name the volume."""
        return self._of_volume.get(volume, ())

    def is_static(self, storage_class: str) -> bool:
        """Volumes of the class are chosen by the scheduler."""
        facts = self.classes.get(storage_class)
        return facts is not None and facts.waits and not facts.provisions

    def attachment(self, id_: ClaimId) -> tuple[str, str] | None:
        """Driver and handle of a claim's volume; the claim in place of the handle while it has no volume."""
        claim = self.claims.get(id_)
        if claim is None:
            return None
        if claim.volume:
            volume = self.volumes.get(claim.volume)
            return (volume.driver, volume.handle) if volume is not None and volume.driver else None
        storage_class = self.classes.get(claim.storage_class)
        return (storage_class.driver, "/".join(id_)) if storage_class is not None and storage_class.provisions else None

    def _forget_volume_of(self, id_: ClaimId, claim: ClaimFacts | None) -> None:
        if claim is not None and claim.volume:
            claims = self._of_volume[claim.volume]
            claims.discard(id_)
            if not claims:
                del self._of_volume[claim.volume]
