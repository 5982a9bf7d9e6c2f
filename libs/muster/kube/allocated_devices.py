"""Devices that a ResourceClaim has, as its status says."""

from typing import Final

import msgspec
from msgspec import Raw, Struct, field

DeviceName = tuple[str, str, str]
"""Driver, pool and device."""


class AllocatedDevices(Struct, frozen=True):
    """Devices of an allocated claim. `own` are those that no other claim may have: not those with admin access, nor
    shares of devices.
    """

    names: frozenset[DeviceName] = frozenset()
    own: frozenset[DeviceName] = frozenset()


class _Result(Struct, rename="camel", frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = field(default=None, name="shareID")

    @property
    def name(self) -> DeviceName:
        return self.driver, self.pool, self.device


class _Devices(Struct, frozen=True):
    results: list[_Result] | None = None


class _Allocation(Struct, frozen=True):
    devices: _Devices = field(default_factory=_Devices)


class _Status(Struct, frozen=True):
    allocation: _Allocation | None = None


_NONE: Final = AllocatedDevices()
_status: Final = msgspec.json.Decoder(_Status | None)


def allocated_devices(status: Raw | bytes) -> AllocatedDevices:
    """Devices by the status of a claim in JSON; none if that is empty. Raises what UNREADABLE has."""
    decoded = _status.decode(status) if status else None
    if decoded is None or decoded.allocation is None or not (results := decoded.allocation.devices.results):
        return _NONE
    own = frozenset(each.name for each in results if not each.admin_access and each.share_id is None)
    return AllocatedDevices(frozenset(each.name for each in results), own)
