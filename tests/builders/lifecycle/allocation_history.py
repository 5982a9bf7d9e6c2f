"""Claims in an API server, and replicas of the device webhook that lag behind, share a ledger, and lose races."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.kube.allocated_devices import DeviceName
from muster.kube.device_objects import DeviceResource, decode_device_resource
from muster.kube.object_changes import ObjectChanges, Removed
from muster.lifecycle.device_allocations.cache import AllocationCache
from muster.lifecycle.device_allocations.ledger import (
    WRITE_SECONDS,
    Allocation,
    Arbiter,
    Ledger,
    decode_ledger,
    encode_ledger,
    without,
)

REQUEST_SECONDS = 60.0
"""The API server ends requests after this time."""


def device(number: int) -> DeviceName:
    return "gpu.example.com", "pool", f"gpu-{number}"


def claim_object(uid: str, version: int, devices: tuple[DeviceName, ...] = (), **result: Any) -> DeviceResource:
    """A claim; `result`: further fields of each of its results."""
    results = [{"driver": driver, "pool": pool, "device": name, **result} for driver, pool, name in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    metadata = {"name": uid, "namespace": "team", "uid": uid, "resourceVersion": str(version)}
    return decode_device_resource(msgspec.json.encode({"metadata": metadata, "status": status}))


def slice_object(counters: int, *consumed: int) -> DeviceResource:
    """A slice of the pool with so many of a shared counter, and devices that consume so many each."""

    def of(number: int) -> list[Any]:
        return [{"counterSet": "card", "counters": {"memory": {"value": str(number)}}}]

    devices = [{"name": f"gpu-{index}", "consumesCounters": of(each)} for index, each in enumerate(consumed)]
    shared = [{"name": "card", "counters": {"memory": {"value": str(counters)}}}]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n", "devices": devices, "sharedCounters": shared}
    return decode_device_resource(msgspec.json.encode({"metadata": {"name": "s", "uid": "s"}, "spec": spec}))


@dataclass
class _Claim:
    version: int
    devices: tuple[DeviceName, ...] = ()


@dataclass
class _Request:
    """An admitted update of a claim, to be written."""

    allocation: Allocation
    at: float


@dataclass
class _Replica:
    cache: AllocationCache = field(default_factory=AllocationCache)
    seen: int = 0


class AllocationWorld:
    """The true state, and what the replicas have observed. `check` after each step."""

    def __init__(self, replicas: int = 2) -> None:
        self.now = 1000.0
        self.claims: dict[str, _Claim] = {}
        self._revision = 1
        self._history: list[ObjectChanges[DeviceResource]] = []
        self._replicas = [_Replica() for _ in range(replicas)]
        self._text, self._text_version = "", 0
        self._requests: list[_Request] = []
        self._created = 0

    # -- users and controllers

    def create(self) -> None:
        self._created += 1
        uid = f"c{self._created}"
        self.claims[uid] = _Claim(0)
        self._change(uid)

    def delete(self, index: int) -> None:
        if (uid := self._some(index)) is not None:
            del self.claims[uid]
            self._revision += 1
            self._history.append(ObjectChanges("resourceclaims", [Removed(uid, self._revision)], self._revision))

    def annotate(self, index: int) -> None:
        if (uid := self._some(index)) is not None:
            self._change(uid)

    def deallocate(self, index: int) -> None:
        if (uid := self._some(index)) is not None:
            self.claims[uid].devices = ()
            self._change(uid)

    def _change(self, uid: str) -> None:
        self._revision += 1
        claim = self.claims[uid]
        claim.version = self._revision
        item = claim_object(uid, claim.version, claim.devices)
        self._history.append(ObjectChanges("resourceclaims", [item], self._revision))

    def _some(self, index: int) -> str | None:
        return sorted(self.claims)[index % len(self.claims)] if self.claims else None

    # -- the webhook

    def allocate(self, replica: int, index: int, devices: tuple[int, ...], *, loses_race: bool = False) -> bool:
        """A scheduler updates a claim: the API server asks a replica, which decides, and records that unless it loses a
        race. Returns whether it is admitted.
        """
        uid = self._some(index)
        if uid is None or self.claims[uid].devices:
            return False
        names = tuple(map(device, dict.fromkeys(devices)))
        allocation = Allocation(uid, f"team/{uid}", self.claims[uid].version, names)
        own = self._replicas[replica % len(self._replicas)]
        ledger = decode_ledger(self._text) if self._text else Ledger()
        self._observe(own, ledger.observed_revision)
        arbiter = Arbiter(ledger, own.cache, self.now)
        if expired := arbiter.expired():
            versions = [self.claims[uid].version for uid, entry in expired if uid in self.claims]
            ledger = without(arbiter.ledger, [uid for uid, _ in expired], max(versions, default=0))
            self._observe(own, ledger.observed_revision)
            arbiter = Arbiter(ledger, own.cache, self.now)
        if arbiter.decide(allocation) or loses_race:
            return False
        self._text = encode_ledger(arbiter.ledger)
        self._requests.append(_Request(allocation, self.now))
        return True

    def store(self, index: int) -> None:
        """The API server stores an admitted update, if the claim has not changed."""
        if not self._requests:
            return
        request = self._requests.pop(index % len(self._requests))
        allocation, claim = request.allocation, self.claims.get(request.allocation.uid)
        if claim is not None and claim.version == allocation.revision and self.now - request.at <= REQUEST_SECONDS:
            claim.devices = allocation.devices
            self._change(allocation.uid)

    def lose(self, index: int) -> None:
        """An admitted update is never stored."""
        if self._requests:
            self._requests.pop(index % len(self._requests))

    # -- time

    def observe(self, replica: int, changes: int) -> None:
        own = self._replicas[replica % len(self._replicas)]
        for change in self._history[own.seen : own.seen + changes]:
            own.cache.apply_claims(change)
        own.seen = min(len(self._history), own.seen + changes)

    def _observe(self, own: _Replica, revision: int) -> None:
        """A replica waits until it has observed the revision."""
        while own.cache.through < revision:
            own.cache.apply_claims(self._history[own.seen])
            own.seen += 1

    def wait(self, seconds: float) -> None:
        self.now += seconds

    # -- checks

    def check(self) -> None:
        """No device is in two allocated claims."""
        devices = Counter(name for claim in self.claims.values() for name in claim.devices)
        twice = {name: number for name, number in devices.items() if number > 1}
        assert not twice, f"allocated to several claims: {twice}"

    def check_free_devices_can_be_allocated(self) -> None:
        """After the time of a request, a claim can get each device that no claim has; nothing else is in the ledger."""
        self._requests.clear()
        self.wait(WRITE_SECONDS + 1)
        for replica in range(len(self._replicas)):
            self.observe(replica, len(self._history))
        taken = {name for claim in self.claims.values() for name in claim.devices}
        for number in range(4):
            if device(number) not in taken:
                self._created += 1
                uid = f"z{self._created}"  # the last by name
                self.claims[uid] = _Claim(0)
                self._change(uid)
                assert self.allocate(0, len(self.claims) - 1, (number,)), f"device {number} is free, and is rejected"
        for replica in range(len(self._replicas)):
            self.observe(replica, len(self._history))
        left = decode_ledger(self._text).in_flight if self._text else {}
        assert len(left) <= 4, f"the ledger has {len(left)} entries"
