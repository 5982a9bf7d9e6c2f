"""Devices that are held: allocated to ResourceClaims, or chosen for pods whose claims are still to be written."""

from collections import Counter
from collections.abc import Collection

from muster.devices.allocation import Devices
from muster.devices.facts import DeviceId
from muster.devices.pools import PoolKey


class Holdings:
    """Devices by holder: a device is free when nobody holds it. A claim and the pod for which its devices were chosen
    hold the same ones for a while. Entries end when their holder holds nothing (I11).
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._held: dict[str, frozenset[DeviceId]] = {}
        self._holders: Counter[DeviceId] = Counter()

    def of(self, holder: str) -> frozenset[DeviceId]:
        """Devices of a holder."""
        return self._held.get(holder, frozenset())

    def by_device(self) -> dict[DeviceId, str]:
        """A holder of each device that is held."""
        return {device: holder for holder, devices in self._held.items() for device in devices}

    def holders(self, device: DeviceId) -> int:
        """How many hold the device."""
        return self._holders[device]

    def hold(self, holder: str, devices: Collection[DeviceId]) -> set[PoolKey]:
        """The holder holds these devices now, and no others. Returns the pools of which other devices are free."""
        before, after = self.of(holder), frozenset(devices)
        if before == after:
            return set()
        if after:
            self._held[holder] = after
        else:
            del self._held[holder]
        taken, freed = [], []
        for each in after - before:
            self._holders[each] += 1
            if self._holders[each] == 1:
                taken.append(each)
        for each in before - after:
            self._holders[each] -= 1
            if not self._holders[each]:
                del self._holders[each]
                freed.append(each)
        self._devices.allocate_ids(taken)
        self._devices.release_ids(freed)
        return {(each.driver, each.pool) for each in (*taken, *freed)}
