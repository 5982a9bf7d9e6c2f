"""Chooses volumes of storage classes without a provisioner for the claims of seats, each volume for one claim.

Nodes offer numbers of these volumes as resources, so that placement and ledger have counted them already. Numbers
suffice for volumes of one node that differ in size; the choice decides for all others, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.coordinator.core.events import Seat
from muster.gangs.facts import Batch, NodeFacts, PodFacts, StaticClaim, StaticVolume
from muster.gangs.node_regions import NodeRegions, Region
from muster.gangs.quoting import quoted
from muster.gangs.volume_resources import binary

MAX_STEPS: Final = 200_000
"""Volumes looked at for augmenting paths of one group, some 50 ms; a choice that takes longer is given up."""

Chosen = dict[str, tuple[tuple[str, str], ...]]
"""Pairs of claim and volume, by uid of the pod."""


_Ranking = list[tuple[bool, int, int, str]]
"""Volumes, the best first; the name is the last entry."""
_Key = tuple[Region, StaticClaim]


class NoVolume(Struct, frozen=True):
    """Why the claims of a group cannot all have volumes, and on which node."""

    message: str
    node: str


class _Want(Struct, frozen=True):
    seat: Seat
    name: str
    claim: StaticClaim


class VolumeChoices:
    """Free volumes, unbound claims, and the volumes that reservations have.

    Volumes and claims end with their facts; `taken` with the reservation, or if that was bound, with the volume or with
    the pod: the pod may be observed bound before its volume is (I11).
    """

    def __init__(self) -> None:
        self.volumes: dict[str, StaticVolume] = {}
        self.claims: dict[str, StaticClaim] = {}
        self.taken: dict[str, str] = {}
        """Uid of the pod for whose claim a volume is chosen."""
        self._bound: dict[str, Seat] = {}
        self._regions = NodeRegions()
        self._at: dict[tuple[Region, str], dict[str, StaticVolume]] = {}  # by region and storage class
        self._own: dict[str, set[str]] = {}  # volumes that are reserved for a claim

    # -- what is seen

    def put_node(self, node: NodeFacts) -> None:
        self._regions.put_node(node)

    def drop_node(self, name: str) -> None:
        self._regions.drop_node(name)

    def apply(self, batch: Batch) -> None:
        """Take in volumes and claims."""
        for name in batch.removed_static_volumes:
            self._drop(name)
            if self.taken.get(name) in self._bound:
                del self.taken[name]
        for volume in batch.static_volumes:
            self._drop(volume.name)
            self.volumes[volume.name] = volume
            self._regions.add(volume.region)
            self._at.setdefault((volume.region, volume.storage_class), {})[volume.name] = volume
            if volume.claim:
                self._own.setdefault(volume.claim, set()).add(volume.name)
        for id_ in batch.removed_static_claims:
            self.claims.pop(id_, None)
        self.claims.update((claim.id, claim) for claim in batch.static_claims)

    def _drop(self, name: str) -> None:
        volume = self.volumes.pop(name, None)
        if volume is not None:
            at = self._at[volume.region, volume.storage_class]
            del at[name]
            if not at:
                del self._at[volume.region, volume.storage_class]
            if volume.claim:
                self._own[volume.claim].discard(name)
                if not self._own[volume.claim]:
                    del self._own[volume.claim]
            self._regions.discard(volume.region)

    # -- reservations

    def take(self, seat: Seat) -> None:
        """The seat's volumes are chosen for it."""
        self.taken.update((volume, seat.uid) for _, volume in seat.volumes)

    def is_kept(self, seat: Seat) -> bool:
        """None of the seat's volumes is taken by another pod."""
        return all(self.taken.get(volume, seat.uid) == seat.uid for _, volume in seat.volumes)

    def bound(self, seat: Seat) -> None:
        """The seat's pod is bound."""
        self._bound[seat.uid] = seat

    def release(self, seat: Seat) -> None:
        """The seat is lost."""
        for _, volume in seat.volumes:
            if self.taken.get(volume) == seat.uid:
                del self.taken[volume]

    def end_pod(self, uid: str) -> None:
        """The pod is gone, has ended, or is not bound any more."""
        seat = self._bound.pop(uid, None)
        if seat is not None:
            self.release(seat)

    @property
    def has_bound_pods(self) -> bool:
        """There are pods that `end_pod` matters to."""
        return bool(self._bound)

    def lacks_choice(self, seat: Seat, claims: Iterable[str]) -> bool:
        """One of the pod's claims needs a volume, and none is chosen for it."""
        chosen = {claim for claim, _ in seat.volumes}
        return any(name not in chosen and f"{seat.namespace}/{name}" in self.claims for name in claims)

    # -- choice

    def choose(self, seats: Iterable[Seat], pods: Mapping[str, PodFacts]) -> Chosen | NoVolume:
        """Volumes for all claims of these seats that need one: for each the smallest one, unless another claim has no
        other. The same for the same state.
        """
        wants = [
            _Want(seat, name, claim)
            for seat in seats
            for name in pods[seat.uid].claims
            if (claim := self.claims.get(f"{seat.namespace}/{name}")) is not None
        ]
        wants.sort(key=lambda want: (-want.claim.size_bytes, want.claim.id, want.seat.uid))
        shared: dict[_Key, _Ranking] = {}
        matching = _Matching([self._rankings(want, shared) for want in wants])
        for index, want in enumerate(wants):
            if not matching.augment(index):
                return NoVolume(self._why(want), want.seat.node)
        chosen: Chosen = {}
        for index, want in enumerate(wants):
            chosen[want.seat.uid] = (*chosen.get(want.seat.uid, ()), (want.name, matching.volume_of[index]))
        return chosen

    def _rankings(self, want: _Want, shared: dict[_Key, _Ranking]) -> list[_Ranking]:
        """The volumes that the claim could have, the best first in each list: its own; then, for each region of the
        node, small ones, and of these the ones that few nodes can use. Equal claims in one region share a list.
        """
        claim, rankings = want.claim, []
        for region in self._regions.regions(want.seat.node):
            at = self._at.get((region, claim.storage_class))
            if at is None:
                continue
            if own := self._ranked(region, (at[name] for name in self._own.get(claim.id, ()) if name in at), claim):
                rankings.append(own)
            key = (region, replace(claim, id=""))
            if key not in shared:
                shared[key] = self._ranked(region, (each for each in at.values() if not each.claim), claim)
            rankings.append(shared[key])
        return rankings

    def _ranked(self, region: Region, volumes: Iterable[StaticVolume], claim: StaticClaim) -> _Ranking:
        breadth = len(self._regions.nodes(region))
        return sorted(
            (not each.claim, each.size_bytes, breadth, each.name)
            for each in volumes
            if each.name not in self.taken and claim.fits(each)
        )

    def _why(self, want: _Want) -> str:
        claim = want.claim
        return (
            f"node {want.seat.node} has no free volume of storage class {quoted(claim.storage_class)} of at least "
            f"{binary(claim.size_bytes)} for PersistentVolumeClaim {claim.id}"
        )


class _Matching:
    """A matching of claims and volumes: each claim takes the best free volume, or extends an augmenting path."""

    def __init__(self, rankings: Sequence[Sequence[_Ranking]]) -> None:
        self._rankings = rankings
        self._firsts: dict[int, int] = {}  # index of the first free volume, by id of the ranking
        self._steps = 0
        self._claim_of: dict[str, int] = {}
        self.volume_of: dict[int, str] = {}

    def augment(self, claim: int) -> bool:
        """Give the claim a volume; others may get another one. Returns whether it has one."""
        free = [ranking[at] for ranking in self._rankings[claim] if (at := self._first_free(ranking)) < len(ranking)]
        if free:
            volume = min(free)[-1]
            self._claim_of[volume], self.volume_of[claim] = claim, volume
            return True
        reached: dict[str, int] = {}  # volume -> claim that would take it
        searched: set[int] = set()
        claims = [claim]
        for each in claims:
            for ranking in self._rankings[each]:
                if id(ranking) in searched:
                    continue
                searched.add(id(ranking))
                self._steps += len(ranking)
                for *_, volume in ranking:
                    if volume in reached:
                        continue
                    reached[volume] = each
                    owner = self._claim_of.get(volume)
                    if owner is None:
                        self._flip(claim, volume, reached)
                        return True
                    claims.append(owner)
            if self._steps > MAX_STEPS:
                return False
        return False

    def _first_free(self, ranking: _Ranking) -> int:
        """A volume that a claim has is never free again, so that none is looked at twice."""
        at = self._firsts.get(id(ranking), 0)
        while at < len(ranking) and ranking[at][-1] in self._claim_of:
            at += 1
        self._firsts[id(ranking)] = at
        return at

    def _flip(self, claim: int, volume: str, reached: Mapping[str, int]) -> None:
        while True:
            taker = reached[volume]
            before = self.volume_of.get(taker)
            self._claim_of[volume], self.volume_of[taker] = taker, volume
            if taker == claim or before is None:
                return
            volume = before
