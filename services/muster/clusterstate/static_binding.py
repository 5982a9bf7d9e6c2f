"""Volumes and claims of storage classes without provisioner, which are bound by the coordinator's choice.

Free volumes are counted as offers of nodes. They and the claims that need one are streamed, so that the coordinator can
choose volumes for a gang with its permit.
"""

from collections.abc import Mapping

from muster.clusterstate.claim_users import ClaimUsers
from muster.clusterstate.stale_demands import StaleDemands
from muster.clusterstate.static_volumes import StaticVolumes
from muster.clusterstate.storage_objects import ClaimId, StorageObjects, VolumeChange
from muster.gangs.facts import StaticClaim, StaticVolume
from muster.kube.volume_facts import VolumeFacts


class StaticBinding:
    """Free volumes and unbound claims, by name. Entries end when they are bound, removed or not used (I11)."""

    def __init__(
        self,
        objects: StorageObjects,
        users: Mapping[ClaimId, ClaimUsers],
        offers: StaticVolumes,
        stale: StaleDemands,
    ) -> None:
        self._objects, self._users, self._offers, self._stale = objects, users, offers, stale
        self._counted: dict[str, tuple[VolumeFacts, bool]] = {}  # volumes of static classes, and whether they are free
        self._reserved: dict[ClaimId, set[str]] = {}  # volumes that are reserved for a claim
        self.volumes: dict[str, StaticVolume] = {}
        self.claims: dict[str, StaticClaim] = {}
        self._changed_volumes: dict[str, StaticVolume | None] = {}
        self._changed_claims: dict[str, StaticClaim | None] = {}

    def __len__(self) -> int:
        """Number of volumes, free or not."""
        return len(self._counted)

    @property
    def has_changes(self) -> bool:
        """Volumes or claims to stream have changed."""
        return bool(self._changed_volumes or self._changed_claims)

    def take_changes(self) -> tuple[Mapping[str, StaticVolume | None], Mapping[str, StaticClaim | None]]:
        """Volumes and claims that changed since the last call, None for removed ones."""
        changes = self._changed_volumes, self._changed_claims
        self._changed_volumes, self._changed_claims = {}, {}
        return changes

    def claim_changed(self, id_: ClaimId) -> None:
        """A claim was added, changed or removed."""
        for volume in list(self._reserved.get(id_, ())):
            self.count_volume(volume)
        self.note_claim(id_)

    def volume_changed(self, change: VolumeChange) -> None:
        """A volume was added, changed or removed."""
        self._note_reservation(change.name, change.before, change.after)
        self.count_volume(change.name)

    def note_claim(self, id_: ClaimId) -> None:
        """Stream a claim while pods use it and it needs a static volume."""
        claim, key, after = self._objects.claims.get(id_), "/".join(id_), None
        if (
            claim is not None
            and not claim.volume
            and id_ in self._users
            and self._objects.is_static(claim.storage_class)
        ):
            needs = claim.needs
            after = StaticClaim(key, claim.storage_class, needs.size_bytes, needs.access_modes, needs.volume_mode)
        if after == self.claims.get(key):
            return
        self._changed_claims[key] = after
        if after is None:
            del self.claims[key]
        else:
            self.claims[key] = after

    def _note_reservation(self, name: str, before: VolumeFacts | None, after: VolumeFacts | None) -> None:
        if before is not None and before.reserved_for is not None:
            volumes = self._reserved[before.reserved_for[:2]]
            volumes.discard(name)
            if not volumes:
                del self._reserved[before.reserved_for[:2]]
        if after is not None and after.reserved_for is not None:
            self._reserved.setdefault(after.reserved_for[:2], set()).add(name)

    def count_volume(self, name: str) -> None:
        """Count a volume of a static class as it is now. Pods may request other sizes then."""
        facts = self._objects.volumes.get(name)
        after = (
            None if facts is None or not self._objects.is_static(facts.storage_class) else (facts, self._is_free(facts))
        )
        before = self._counted.pop(name, None)
        if after is not None:
            self._counted[name] = after
        if before == after:
            return
        for each, sign in ((after, 1), (before, -1)):
            if each is not None and self._offers.add(each[0], sign):
                self._stale.classes((each[0].storage_class,))
                self._stale.all_nodes()
            if each is not None and each[1]:
                self._stale.nodes(self._offers.free(each[0], sign))
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
        if after == self.volumes.get(name):
            return
        self._changed_volumes[name] = after
        if after is None:
            del self.volumes[name]
        else:
            self.volumes[name] = after

    def own_volumes(self, id_: ClaimId) -> list[str]:
        """The volume that is reserved for an unbound claim, if any: the claim will be bound to it."""
        return sorted(name for name in self._reserved.get(id_, ()) if self._is_free(self._objects.volumes[name]))[:1]

    def _is_free(self, volume: VolumeFacts) -> bool:
        """No claim has the volume. A volume that is reserved counts until its claim is bound, as the claim does."""
        if not volume.available or volume.reserved_for is None:
            return volume.available
        namespace, name, uid = volume.reserved_for
        claim = self._objects.claims.get((namespace, name))
        return claim is not None and not claim.volume and uid in ("", claim.uid)
