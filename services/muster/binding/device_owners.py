"""Watches which ResourceClaims have which devices, so that no pod is bound with a device that another claim has.

The API server does not compare claims: another scheduler may allocate a device after the coordinator chose it, and
before its choice is written. When all claims of a Bind call are written and this watch has shown them, every allocation
that was written before them has been seen.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

import structlog
from msgspec import Struct

from muster.gangs.quoting import quoted
from muster.kube.allocated_devices import AllocatedDevices, DeviceName, allocated_devices
from muster.kube.api_resources import RESOURCE_CLAIMS
from muster.kube.device_objects import DeviceResource
from muster.kube.informer import Informer
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import UNREADABLE
from muster.kube.session import KubeSession

_OBSERVE_SECONDS: Final = 3.0
"""Longest wait for a written claim to be observed. Then what has been seen decides: the watch may be interrupted."""

_log: Final = structlog.get_logger()


class _Held(Struct, frozen=True):
    """An allocated claim."""

    claim: str
    devices: AllocatedDevices


class _Wait:
    """Claims of one call that are not observed yet."""

    def __init__(self, missing: set[str]) -> None:
        self.missing = missing
        self.over = asyncio.Event()


class DeviceOwners:
    """The devices of all allocated claims, from the first call that has some until `stop`; each until its claim is
    deallocated or deleted (I11).
    """

    def __init__(self, session: KubeSession) -> None:
        self._informer = Informer(session, RESOURCE_CLAIMS, self._on_changes)
        self._task: asyncio.Task[None] | None = None
        self._held: dict[str, _Held] = {}
        """By uid of the claim."""
        self._owners: dict[DeviceName, set[str]] = {}
        """Uids of claims by device of their own."""
        self._waits: dict[str, list[tuple[frozenset[DeviceName], _Wait]]] = {}
        """Calls by uid of a claim that they wait for, with the devices that it is to have: as long as they wait."""

    def start(self) -> None:
        """Start the watch, unless it runs."""
        if self._task is None:
            self._task = asyncio.create_task(self._informer.run())

    async def stop(self) -> None:
        """Stop the watch."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def taken(self, claims: Mapping[str, Collection[DeviceName]]) -> dict[str, str]:
        """Claims of which another claim has a device, by uid, with the reason as a predicate. `claims`: written ones by
        uid, with their devices; returns when they are observed.
        """
        self.start()
        await self._observe({uid: frozenset(devices) for uid, devices in claims.items()})
        reasons = {}
        for uid in claims:
            held = self._held.get(uid)
            for name in sorted(held.devices.own) if held is not None else ():
                if others := self._owners[name] - {uid}:
                    other = self._held[min(others)].claim
                    reasons[uid] = f"got device {'/'.join(name)}, which ResourceClaim {quoted(other)} has, too"
                    break
        return reasons

    async def _observe(self, claims: Mapping[str, frozenset[DeviceName]]) -> None:
        wait = _Wait({uid for uid, devices in claims.items() if not self._shows(uid, devices)})
        unavailable = self._informer.complete.is_set() and self._informer.last_response_at is None
        if not wait.missing or unavailable:
            return
        awaited = sorted(wait.missing)
        for uid in awaited:
            self._waits.setdefault(uid, []).append((claims[uid], wait))
        try:
            await asyncio.wait_for(wait.over.wait(), _OBSERVE_SECONDS)
        except TimeoutError:
            _log.warning("device_claims_not_observed", claims=len(wait.missing), seconds=_OBSERVE_SECONDS)
        finally:
            for uid in awaited:
                self._waits[uid] = [each for each in self._waits[uid] if each[1] is not wait]
                if not self._waits[uid]:
                    del self._waits[uid]

    def _shows(self, uid: str, devices: frozenset[DeviceName]) -> bool:
        held = self._held.get(uid)
        return held is not None and held.devices.names == devices

    def _on_changes(self, changes: ObjectChanges[DeviceResource]) -> None:
        for item in changes.items:
            uid = item.uid if isinstance(item, Removed) else item.metadata.uid
            self._forget(uid)
            if not isinstance(item, Removed):
                self._hold(uid, item)

    def _forget(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        for name in held.devices.own if held is not None else ():
            owners = self._owners[name]
            owners.discard(uid)
            if not owners:
                del self._owners[name]

    def _hold(self, uid: str, claim: DeviceResource) -> None:
        allocated = _allocated(claim)
        if not allocated.names:
            return
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        held = self._held[uid] = _Held(name, allocated)
        for device in allocated.own:
            self._owners.setdefault(device, set()).add(uid)
        for devices, wait in self._waits.get(uid, ()):
            if devices == held.devices.names:
                wait.missing.discard(uid)
                if not wait.missing:
                    wait.over.set()


def _allocated(claim: DeviceResource) -> AllocatedDevices:
    """Devices of a claim; none if they cannot be read."""
    try:
        return allocated_devices(claim.status)
    except UNREADABLE:
        return AllocatedDevices()
