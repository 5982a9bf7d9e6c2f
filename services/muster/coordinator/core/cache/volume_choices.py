"""Chooses volumes of storage classes without a provisioner for the claims of seats, each volume for one claim.

Nodes offer numbers of these volumes as resources, so that placement and ledger have counted them already. Numbers
suffice for volumes of one node that differ in size; the choice decides for all others, too.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from muster.coordinator.core.events import Seat
from muster.gangs.counted_resources import binary
from muster.gangs.facts import Batch, NodeFacts, PodFacts, StaticClaim, StaticVolume
from muster.gangs.node_regions import NodeRegions, Region
from muster.gangs.quoting import quoted

MAX_STEPS: Final = 200_000
"""Volumes looked at for augmenting paths of one group, some 50 ms; a choice that takes longer is given up."""

Chosen = dict[str, tuple[tuple[str, str], ...]]
"""Pairs of claim and volume, by uid of the pod."""


_Sizes = list[tuple[int, str]]
"""Size and name of volumes, the smallest first."""
_Kind = tuple[str, tuple[str, ...]]
"""Volume mode and access modes."""


class _Ranking(NamedTuple):
    """Volumes that a claim could have, the best first: those of a list from an index on. The list is shared by all
    claims, since it has thousands of volumes that any node can use.
    """

    reserved: bool
    """For this claim only."""
    breadth: int
    """Nodes that can use them."""
    volumes: _Sizes
    start: int


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
        self._free: dict[tuple[Region, str], dict[_Kind, _Sizes]] = {}
        """Volumes that any claim may have and no reservation has, by region and storage class, then by kind."""
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
            self._add_free(volume.name)
            if volume.claim:
                self._own.setdefault(volume.claim, set()).add(volume.name)
        for id_ in batch.removed_static_claims:
            self.claims.pop(id_, None)
        self.claims.update((claim.id, claim) for claim in batch.static_claims)

    def _drop(self, name: str) -> None:
        self._discard_free(name)
        volume = self.volumes.pop(name, None)
        if volume is not None:
            if volume.claim:
                self._own[volume.claim].discard(name)
                if not self._own[volume.claim]:
                    del self._own[volume.claim]
            self._regions.discard(volume.region)

    def _add_free(self, name: str) -> None:
        """Any claim may have the volume, if it is known, for no claim only, and not taken."""
        volume = self.volumes.get(name)
        if volume is None or volume.claim or name in self.taken:
            return
        kinds = self._free.setdefault((volume.region, volume.storage_class), {})
        insort(kinds.setdefault(_kind(volume), []), (volume.size_bytes, name))

    def _discard_free(self, name: str) -> None:
        """No other claim may have the volume."""
        volume = self.volumes.get(name)
        if volume is None or volume.claim or name in self.taken:
            return
        kinds = self._free[volume.region, volume.storage_class]
        sizes = kinds[_kind(volume)]
        del sizes[bisect_left(sizes, (volume.size_bytes, name))]
        if not sizes:
            del kinds[_kind(volume)]
        if not kinds:
            del self._free[volume.region, volume.storage_class]

    # -- reservations

    def take(self, seat: Seat) -> None:
        """The seat's volumes are chosen for it."""
        for _, volume in seat.volumes:
            self._discard_free(volume)
            self.taken[volume] = seat.uid

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
                self._add_free(volume)

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
        matching = _Matching([self._rankings(want) for want in wants])
        for index, want in enumerate(wants):
            if not matching.augment(index):
                return NoVolume(self._why(want), want.seat.node)
        chosen: Chosen = {}
        for index, want in enumerate(wants):
            chosen[want.seat.uid] = (*chosen.get(want.seat.uid, ()), (want.name, matching.volume_of[index]))
        return chosen

    def _rankings(self, want: _Want) -> list[_Ranking]:
        """The volumes that the claim could have: its own; then, for each region of the node and each kind of volume,
        small ones. No volume is looked at but its own.
        """
        claim, rankings = want.claim, []
        regions = self._regions.regions(want.seat.node)
        for name in self._own.get(claim.id, ()):
            own = self.volumes[name]
            if own.region in regions and name not in self.taken and claim.fits(own):
                breadth = len(self._regions.nodes(own.region))
                rankings.append(_Ranking(True, breadth, [(own.size_bytes, name)], 0))
        for region in regions:
            breadth = len(self._regions.nodes(region))
            for (volume_mode, access_modes), sizes in self._free.get((region, claim.storage_class), {}).items():
                if volume_mode == claim.volume_mode and set(claim.access_modes) <= set(access_modes):
                    start = bisect_left(sizes, (claim.size_bytes, ""))
                    rankings.append(_Ranking(False, breadth, sizes, start))
        return rankings

    def _why(self, want: _Want) -> str:
        claim = want.claim
        return (
            f"node {want.seat.node} has no free volume of storage class {quoted(claim.storage_class)} of at least "
            f"{binary(claim.size_bytes)} for PersistentVolumeClaim {claim.id}"
        )


def _kind(volume: StaticVolume) -> _Kind:
    return volume.volume_mode, volume.access_modes


class _Matching:
    """A matching of claims and volumes: each claim takes the best free volume, or extends an augmenting path."""

    def __init__(self, rankings: Sequence[Sequence[_Ranking]]) -> None:
        self._rankings = rankings
        self._next: dict[tuple[int, int], int] = {}
        """Index behind a volume that a claim has, or behind further ones, by id of the list and index."""
        self._steps = 0
        self._claim_of: dict[str, int] = {}
        self.volume_of: dict[int, str] = {}

    def augment(self, claim: int) -> bool:
        """Give the claim a volume; others may get another one. Returns whether it has one."""
        free = [
            (not ranking.reserved, ranking.volumes[at][0], ranking.breadth, ranking.volumes[at][1])
            for ranking in self._rankings[claim]
            if (at := self._first_free(ranking)) < len(ranking.volumes)
        ]
        if free:
            *_, volume = min(free)
            self._claim_of[volume], self.volume_of[claim] = claim, volume
            return True
        reached: dict[str, int] = {}  # volume -> claim that would take it
        searched: dict[int, int] = {}  # index from which on a list was searched
        claims = [claim]
        for each in claims:
            for ranking in self._rankings[each]:
                end = searched.get(id(ranking.volumes), len(ranking.volumes))
                if ranking.start >= end:
                    continue
                searched[id(ranking.volumes)] = ranking.start
                self._steps += end - ranking.start
                for _, volume in islice(ranking.volumes, ranking.start, end):
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
        list_, at = id(ranking.volumes), ranking.start
        passed = []
        while at < len(ranking.volumes) and ranking.volumes[at][1] in self._claim_of:
            passed.append((list_, at))
            at = self._next.get((list_, at), at + 1)
        self._next.update((each, at) for each in passed)
        return at

    def _flip(self, claim: int, volume: str, reached: Mapping[str, int]) -> None:
        while True:
            taker = reached[volume]
            before = self.volume_of.get(taker)
            self._claim_of[volume], self.volume_of[taker] = taker, volume
            if taker == claim or before is None:
                return
            volume = before
