"""Invariants of devices, checked at every change of claims, pods and records from the start of a cluster to its end.

I2 a claim is allocated as a permit in etcd says, and a permit has the devices of every pod that it permits
I3 no device is allocated to two claims, and none is in the permits of two
I4 the allocation of a claim does not change while a pod runs with it
I6 a pod is bound only once its claims are allocated and reserved for it
"""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from builders.e2e.cluster import JSON, Cluster, node_of
from builders.kube.watch import follow_kind
from builders.wait import WAIT_SECONDS
from muster.coordinator.v1.record_pb2 import GangRecord, SeatedPod
from muster.devices.decoding import EXTENDED_ANNOTATION
from muster.devices.extended_resources import EXTENDED_CLAIM
from muster.devices.facts import Allocation

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_ENDED = ("Succeeded", "Failed")

Device = tuple[str, str, str]
"""Driver, pool and name."""
Key = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass
class _Claim:
    """A claim as it was last observed."""

    key: Key
    permit_key: Key
    """Its key in permits: claims for extended resources are created later, and have the uid of their pod there."""
    devices: frozenset[Device] = frozenset()
    reserved_at: dict[str, int] = field(default_factory=dict)
    """Resource version with which the claim was first allocated and reserved, by uid of the pod."""


@dataclass
class _Pod:
    """A bound pod with claims."""

    key: Key
    claims: frozenset[Key]
    bound_at: int
    """Resource version of the pod when it was first observed to be bound."""


class DeviceInvariants:
    """Collects violations of a cluster. Claims that none of its schedulers permits are not expected."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.violations: list[str] = []
        self.allocations = 0
        """Allocations that were observed."""
        self._claims: dict[str, _Claim] = {}
        self._pods: dict[str, _Pod] = {}
        self._unbound: dict[str, _Pod] = {}
        """Bound pods by uid whose claims were not observed yet: watches of two kinds do not wait for each other."""
        self._unpermitted: dict[tuple[Key, frozenset[Device]], None] = {}
        """Allocations of claims that no observed permit has; etcd is observed later, at times."""
        self._permitted: dict[Key, set[frozenset[Device]]] = {}
        """Devices of permits by claim; an entry ends with the claim."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Start watching claims; returns when the current ones are known."""
        listed = asyncio.Event()
        self._go(follow_kind(self._cluster.session, CLAIMS, self._claim_changed, listed))
        await listed.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def allocated(self) -> dict[Device, Key]:
        """The claims that have devices."""
        return {device: claim.key for claim in self._claims.values() for device in claim.devices}

    async def settled(self) -> None:
        """Wait until everything that was observed of pods is explained by claims and permits; what is not becomes a
        violation.
        """
        try:
            await self._cluster.until(
                lambda: not (self._unbound or self._unpermitted), "claims of bound pods", seconds=WAIT_SECONDS
            )
        except AssertionError:
            for uid, pod in self._unbound.items():
                has = [claim for claim in self._claims.values() if claim.key in pod.claims]
                self._violated("I6", f"{pod.key} ({uid}) is bound without claims that are reserved for it: {has}")
            for key, devices in self._unpermitted:
                self._violated("I2", f"{key} got {sorted(devices)}, and no permit has this")
            self._unbound.clear()
            self._unpermitted.clear()

    async def nothing_allocated(self) -> None:
        """Check at rest, without pods: no claim is allocated, by a direct read too (I5)."""
        await self._cluster.until(lambda: not self.allocated, "no device is allocated", seconds=WAIT_SECONDS)
        items = (await self._cluster.call("GET", CLAIMS))["items"]
        left = [each["metadata"]["name"] for each in items if (each.get("status") or {}).get("allocation")]
        generated = [each["metadata"]["name"] for each in items if each["metadata"].get("ownerReferences")]
        if left or generated:
            self._violated("I5", f"without pods, {left} are allocated and {generated} exist")

    # -- claims

    def _claim_changed(self, change: str, claim: JSON) -> None:
        metadata, status = claim["metadata"], claim.get("status") or {}
        uid, key = metadata["uid"], (metadata["namespace"], metadata["name"])
        if change == "DELETED":
            self._removed(uid)
            return
        known = self._claims.setdefault(uid, _Claim(key, _permit_key(key, metadata)))
        devices = _devices_of((status.get("allocation") or {"devices": {}})["devices"].get("results") or ())
        if devices != known.devices:
            self._allocated(uid, known, devices)
        version = int(metadata["resourceVersion"])
        users = [str(each["uid"]) for each in status.get("reservedFor") or () if devices]
        known.reserved_at = {user: known.reserved_at.get(user, version) for user in users}
        for user in users:
            if user in self._unbound:
                self._compare(user)
        self._cluster.view.touch()

    def _removed(self, uid: str) -> None:
        known = self._claims.pop(uid, None)
        if known is not None and known.devices:
            self._check_unused(known)
        if known is not None:
            self._permitted.pop(known.permit_key, None)
            self._unpermitted = {each: None for each in self._unpermitted if each[0] != known.permit_key}
        self._cluster.view.touch()

    def _allocated(self, uid: str, claim: _Claim, devices: frozenset[Device]) -> None:
        if claim.devices:
            self._check_unused(claim)
        claim.devices = devices
        if not devices:
            claim.reserved_at = {}
            return
        self.allocations += 1
        for other_uid, other in self._claims.items():
            if other_uid != uid and (both := other.devices & devices):
                self._violated("I3", f"{sorted(both)} are allocated to {other.key} and {claim.key}")
        if devices not in self._permitted.get(claim.permit_key, ()):
            self._unpermitted[(claim.permit_key, devices)] = None

    def _check_unused(self, claim: _Claim) -> None:
        """Check that no pod runs with the devices that a claim loses."""
        for uid in claim.reserved_at:
            if uid in self._pods:
                self._go(self._check_ended(uid, self._pods[uid], claim.key))

    async def _check_ended(self, uid: str, pod: _Pod, claim: Key) -> None:
        """Check that the pod has ended or is gone: asked of the API, as the watch of pods may be late."""
        found = await self._found(pod.key, uid)
        if found and found.get("status", {}).get("phase") not in _ENDED:
            self._violated("I4", f"{claim} lost its devices while {pod.key} runs with them")

    async def _found(self, key: Key, uid: str) -> JSON:
        """The pod as the API server has it; empty if it is gone."""
        answer = await self._cluster.try_call("GET", f"/api/v1/namespaces/{key[0]}/pods/{key[1]}")
        found: JSON = msgspec.json.decode(answer.body) if answer.status == HTTPStatus.OK else {}
        return found if found and found["metadata"]["uid"] == uid else {}

    # -- pods

    def pod(self, change: str, pod: JSON) -> None:
        """Take in a change of a pod, of which the cluster knows already."""
        metadata = pod["metadata"]
        uid, ended = metadata["uid"], change == "DELETED" or pod.get("status", {}).get("phase") in _ENDED
        if ended:
            self._pods.pop(uid, None)
            self._unbound.pop(uid, None)
        elif node_of(pod) and uid not in self._pods and (claims := _claims_of(pod)):
            key = metadata["namespace"], metadata["name"]
            self._pods[uid] = self._unbound[uid] = _Pod(key, claims, int(metadata["resourceVersion"]))
            self._compare(uid)

    def _compare(self, uid: str) -> None:
        """Compare a bound pod with its claims, once all are observed."""
        pod = self._unbound[uid]
        reserved = {each.key: each.reserved_at[uid] for each in self._claims.values() if uid in each.reserved_at}
        if not pod.claims <= reserved.keys():
            return
        del self._unbound[uid]
        if late := [key for key in pod.claims if reserved[key] > pod.bound_at]:
            self._violated("I6", f"{pod.key} was bound before {late} were reserved for it")

    # -- records

    def record(self, gang: str, record: GangRecord | None) -> None:
        """Take in a change of a record."""
        if record is None or record.state != GangRecord.STATE_BINDING:
            return
        owners: dict[Device, Key] = {}
        for pod in (pod for seat in record.seats for pod in seat.pods):
            for key, devices in _chosen(pod):
                self._check_owners(gang, owners, key, devices)
                if devices:
                    self._permitted.setdefault(key, set()).add(devices)
                    self._unpermitted.pop((key, devices), None)
            self._check_complete(gang, pod)
        self._check_permits(gang, owners)
        self._cluster.view.touch()

    def _check_permits(self, gang: str, owners: dict[Device, Key]) -> None:
        """Check that no other permit has these devices for a pod that is not bound yet."""
        for other in self._cluster.records.present:
            for pod in self._permitted_pods(other) if other != gang else ():
                for key, devices in _chosen(pod):
                    if any(owners.get(device, key) != key for device in devices):
                        self._go(self._check_superseded(gang, other, pod, key, devices))

    def _permitted_pods(self, gang: str) -> list[SeatedPod]:
        record = self._cluster.records.present.get(gang)
        if record is None or record.state != GangRecord.STATE_BINDING:
            return []
        return [pod for seat in record.seats for pod in seat.pods]

    async def _check_superseded(
        self, gang: str, other: str, pod: SeatedPod, claim: Key, devices: frozenset[Device]
    ) -> None:
        """Check that the pod is bound or gone, or that its permit, which may be of the same write, is changed."""
        found = await self._found((pod.namespace, pod.name), pod.uid)
        if not found or node_of(found):
            return
        if any((claim, devices) in _chosen(each) for each in self._permitted_pods(other) if each.uid == pod.uid):
            self._violated("I3", f"{gang} and {other} have permits for devices among {sorted(devices)}")

    def _check_owners(self, gang: str, owners: dict[Device, Key], key: Key, devices: Iterable[Device]) -> None:
        for device in devices:
            if owners.setdefault(device, key) != key:
                self._violated("I3", f"{device} is permitted for {owners[device]} and {key} of {gang}")

    def _check_complete(self, gang: str, pod: SeatedPod) -> None:
        """Check that a permitted pod has devices for each of its claims: in the permit, or allocated already."""
        found = self._cluster.pods.get((pod.namespace, pod.name))
        if found is None or found["metadata"]["uid"] != pod.uid or node_of(found):
            return
        allocated = {claim.key for claim in self._claims.values() if claim.devices}
        needed = _claims_of(found) - allocated
        if len(needed) > len(pod.devices):  # by number: claims that were deleted have new names
            self._violated("I2", f"{gang} is permitted without devices for {sorted(needed)} of {pod.name}")

    def _violated(self, invariant: str, what: str) -> None:
        self.violations.append(f"{invariant}: {what}")


def _permit_key(key: Key, metadata: JSON) -> Key:
    if (metadata.get("annotations") or {}).get(EXTENDED_ANNOTATION) != "true":
        return key
    return key[0], f"{EXTENDED_CLAIM} {metadata['ownerReferences'][0]['uid']}"


def _chosen(pod: SeatedPod) -> list[tuple[Key, frozenset[Device]]]:
    """Devices that a permit has for the claims of a pod; none for a claim whose devices another pod of it has."""
    found = []
    for name, content in pod.devices.items():
        results = msgspec.json.decode(content, type=Allocation).results if content else ()
        devices = frozenset((each.id.driver, each.id.pool, each.id.device) for each in results)
        found.append(((pod.namespace, f"{name} {pod.uid}" if name == EXTENDED_CLAIM else name), devices))
    return found


def _devices_of(results: Iterable[JSON]) -> frozenset[Device]:
    return frozenset((each["driver"], each["pool"], each["device"]) for each in results if not each.get("adminAccess"))


def _claims_of(pod: JSON) -> frozenset[Key]:
    """Claims that a pod uses and that have a name."""
    namespace, status = pod["metadata"]["namespace"], pod.get("status") or {}
    generated: dict[str, Any] = {
        each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()
    }
    names = [
        each.get("resourceClaimName") or generated.get(each["name"]) for each in pod["spec"].get("resourceClaims") or ()
    ]
    names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    return frozenset((namespace, name) for name in names if name)
