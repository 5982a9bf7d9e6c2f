"""Validation of the status of ResourceClaims: allocation, reservations and device statuses."""

from collections.abc import Iterator
from typing import Final

from muster.localcluster.apiserver.devices.claim_validation import (
    MAX_CONFIGS,
    Names,
    config_causes,
    reference_causes,
    toleration_causes,
)
from muster.localcluster.apiserver.devices.names import (
    driver_causes,
    duplicate_causes,
    each_causes,
    label_causes,
    pool_causes,
)
from muster.localcluster.apiserver.devices.slice_validation import node_selector_causes
from muster.localcluster.apiserver.devices.types import (
    Allocation,
    ClaimStatus,
    Config,
    Consumer,
    DeviceStatus,
    Result,
    Results,
)
from muster.localcluster.apiserver.status import Cause, forbidden_value, invalid_value, not_supported, required

_MAX_RESERVED: Final = 256
_MAX_RESULTS: Final = 32
_SOURCES: Final = ("FromClaim", "FromClass")
_WITHOUT_ALLOCATION: Final = "may not be specified when `allocated` is not set"
_WHILE_DELETED: Final = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"

DeviceKey = tuple[str | None, str | None, str | None, str | None]
"""Driver, pool, device and share of an allocated device."""


def status_causes(status: ClaimStatus, old: ClaimStatus, names: Names, *, is_deleted: bool) -> Iterator[Cause]:
    """Problems of a changed status. `names`: the requests of the claim."""
    reserved, field = status.reserved_for or [], "status.reservedFor"
    yield from each_causes(reserved, _MAX_RESERVED, _consumer_causes, field)
    yield from duplicate_causes([each.uid for each in reserved], field)
    if reserved and status.allocation is None:
        yield forbidden_value(field, _WITHOUT_ALLOCATION)
    elif is_deleted and any(each not in (old.reserved_for or ()) for each in reserved):
        yield forbidden_value(field, _WHILE_DELETED)
    if status.allocation is not None and old.allocation is None:
        yield from _allocation_causes(status.allocation, "status.allocation", names)
    yield from _device_causes(status)


def allocated(allocation: Allocation | None) -> set[DeviceKey]:
    """The devices of an allocation."""
    results = (allocation.devices.results if allocation is not None and allocation.devices is not None else None) or ()
    return {key_of(each) for each in results}


def key_of(device: Result | DeviceStatus) -> DeviceKey:
    return device.driver, device.pool, device.device, device.share_id


def _consumer_causes(consumer: Consumer, field: str) -> Iterator[Cause]:
    for name in ("resource", "name", "uid"):
        if not getattr(consumer, name):
            yield required(f"{field}.{name}")


def _allocation_causes(allocation: Allocation, field: str, names: Names) -> Iterator[Cause]:
    devices = allocation.devices or Results()
    at = f"{field}.devices"
    yield from each_causes(
        devices.results or [], _MAX_RESULTS, lambda each, at: _result_causes(each, at, names), f"{at}.results"
    )
    yield from each_causes(
        devices.config or [], 2 * MAX_CONFIGS, lambda each, at: _config_causes(each, at, names), f"{at}.config"
    )
    if allocation.node_selector is not None:
        yield from node_selector_causes(allocation.node_selector, f"{field}.nodeSelector")


def _result_causes(result: Result, field: str, names: Names) -> Iterator[Cause]:
    yield from reference_causes(result.request, names, f"{field}.request")
    yield from driver_causes(result.driver, f"{field}.driver")
    yield from pool_causes(result.pool, f"{field}.pool")
    yield from label_causes(result.device, f"{field}.device")
    for index, toleration in enumerate(result.tolerations or ()):
        yield from toleration_causes(toleration, f"{field}.tolerations[{index}]")


def _config_causes(config: Config, field: str, names: Names) -> Iterator[Cause]:
    if not config.source:
        yield required(f"{field}.source")
    elif config.source not in _SOURCES:
        yield not_supported(f"{field}.source", config.source, _SOURCES)
    yield from config_causes(config, field, names)


def _device_causes(status: ClaimStatus) -> Iterator[Cause]:
    devices, field = status.devices or [], "status.devices"
    existing = allocated(status.allocation)
    for index, each in enumerate(devices):
        at = f"{field}[{index}]"
        yield from driver_causes(each.driver, f"{at}.driver")
        yield from pool_causes(each.pool, f"{at}.pool")
        yield from label_causes(each.device, f"{at}.device")
        if key_of(each) not in existing:
            named = "/".join(part for part in key_of(each) if part)
            yield invalid_value(at, named, "must be an allocated device in the claim")
    yield from duplicate_causes(["/".join(map(str, key_of(each))) for each in devices], field)
