"""Caches which ResourceClaims have which devices, and the shared counters of pools."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from muster.devices.facts import CounterSet
from muster.kube.allocated_devices import AllocatedDevices, DeviceName, allocated_devices
from muster.kube.api_resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from muster.kube.device_objects import DeviceResource, slice_facts
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import UNREADABLE
from muster.lifecycle.device_allocations.ledger import device_digest
from muster.lifecycle.informers import SharedInformers

MAX_REMOVED: Final = 4096
"""Deletions that are remembered, the latest ones."""

_PoolKey = tuple[str, str]
_CounterKey = tuple[str, str]
"""Counter set and counter."""


class _Claim(Struct, frozen=True):
    """`devices`: digests of those that no other claim may have."""

    name: str
    version: int
    devices: tuple[str, ...] = ()


class _Slice(Struct, frozen=True):
    """A slice of a pool with shared counters: `consumers` by digest of the device."""

    pool: _PoolKey
    generation: int
    shared: tuple[CounterSet, ...]
    consumers: dict[str, tuple[CounterSet, ...]]


class AllocationCache:
    """All claims, and the slices of pools with shared counters. Entries end with their object (I11)."""

    def __init__(self) -> None:
        self.through = 0
        self._claims: dict[str, _Claim] = {}
        self._owners: dict[str, dict[str, str]] = {}
        """Names of claims by digest of a device, and uid."""
        self._removed: dict[str, int] = {}
        self._slices: dict[str, _Slice] = {}
        self._pools: dict[_PoolKey, dict[str, _Slice]] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def watch(self, informers: SharedInformers) -> None:
        """Has the informers deliver what is cached."""
        informers.add_handler(RESOURCE_CLAIMS, self.apply_claims)
        informers.add_handler(RESOURCE_SLICES, self.apply_slices)

    async def reached(self, revision: int) -> None:
        """Waits until all claims up to the revision have been observed. The caller sets the deadline."""
        if self.through < revision:
            seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, seen))
            await seen

    def version(self, uid: str) -> int:
        """The version of the claim; 0: it is not known."""
        claim = self._claims.get(uid)
        return claim.version if claim is not None else 0

    def removed_at(self, uid: str) -> int:
        """The revision of its deletion, if that was lately."""
        return self._removed.get(uid, 0)

    def owners(self, device: str) -> Mapping[str, str]:
        """Claims, by uid, that have a device."""
        return self._owners.get(device, {})

    def exceeded_counters(self, devices: Collection[DeviceName], is_held: Callable[[str], bool]) -> str:
        """The shared counter that these devices would exceed, beside allocated and held ones, in words; empty: none."""
        for driver, pool in sorted({(driver, pool) for driver, pool, _ in devices} & self._pools.keys()):
            slices = self._pools[driver, pool].values()
            generation = max(each.generation for each in slices)
            newest = [each for each in slices if each.generation == generation]
            consumers = {device: consumed for each in newest for device, consumed in each.consumers.items()}
            wanted = {device_digest(name) for name in devices if name[:2] == (driver, pool)} & consumers.keys()
            taken = (device for device in consumers if device in self._owners or is_held(device))
            left = Counter[_CounterKey]()
            for each in newest:
                left.update(_amounts(each.shared))
            for device in wanted | set(taken) if wanted else ():
                left.subtract(_amounts(consumers[device]))
            if short := min((key for key, amount in left.items() if amount < 0), default=None):
                set_, counter = short
                what = f"counter {counter} of counter set {set_} of pool {driver}/{pool}"
                return f"{what} does not suffice for this and what other ResourceClaims have"
        return ""

    # -- changes

    def apply_claims(self, changes: ObjectChanges[DeviceResource]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                self._forget(item.uid)
                self._remember_removal(item)
            else:
                self._put(item)
        if changes.through:  # lower than before if the API server was restored from a backup
            self.through = changes.through
            self._resume_waiting()

    def _put(self, claim: DeviceResource) -> None:
        metadata = claim.metadata
        self._forget(metadata.uid)
        try:
            allocated = allocated_devices(claim.status)
        except UNREADABLE:
            allocated = AllocatedDevices()
        devices = tuple(map(device_digest, sorted(allocated.own)))
        name = f"{metadata.namespace}/{metadata.name}"
        self._claims[metadata.uid] = _Claim(name, int(metadata.resource_version or 0), devices)
        for device in devices:
            self._owners.setdefault(device, {})[metadata.uid] = name

    def _forget(self, uid: str) -> None:
        claim = self._claims.pop(uid, None)
        for device in claim.devices if claim is not None else ():
            owners = self._owners[device]
            owners.pop(uid, None)
            if not owners:
                del self._owners[device]

    def _remember_removal(self, removed: Removed) -> None:
        if removed.revision:
            self._removed[removed.uid] = removed.revision
            if len(self._removed) > MAX_REMOVED:
                del self._removed[next(iter(self._removed))]

    def apply_slices(self, changes: ObjectChanges[DeviceResource]) -> None:
        for item in changes.items:
            uid = item.uid if isinstance(item, Removed) else item.metadata.uid
            self._drop_slice(uid)
            if isinstance(item, Removed) or (facts := slice_facts(item).facts) is None:
                continue
            consumers = {
                device_digest((facts.driver, facts.pool, each.name)): each.consumes
                for each in facts.devices
                if each.consumes
            }
            if consumers or facts.shared:
                key = (facts.driver, facts.pool)
                slice_ = self._slices[uid] = _Slice(key, facts.generation, facts.shared, consumers)
                self._pools.setdefault(key, {})[uid] = slice_

    def _drop_slice(self, uid: str) -> None:
        slice_ = self._slices.pop(uid, None)
        if slice_ is None:
            return
        slices = self._pools[slice_.pool]
        del slices[uid]
        if not slices:
            del self._pools[slice_.pool]

    def _resume_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for revision, seen in waiting:
            if seen.done():
                continue
            if revision <= self.through:
                seen.set_result(None)
            else:
                self._waiting.append((revision, seen))


def _amounts(sets: Iterable[CounterSet]) -> dict[_CounterKey, int]:
    return {(each.name, counter): amount for each in sets for counter, amount in each.counters}
