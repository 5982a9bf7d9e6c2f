"""Claims as counted resources, so that placement and ledger count devices like cpu (decision 0061).

A request for a number of devices of a class becomes a request for that many of the class; with selectors or
tolerations of its own, also for as many that meet these. What cannot be counted this way (constraints, alternatives,
all devices, admin access) becomes one of the resource that stands for the claims together: a node offers as many as can
be allocated at the same time. What nodes offer is necessary, and sufficient unless pods of different claims compete;
the devices are chosen with the permit.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from muster.devices.facts import Alternative, Claim, Request
from muster.gangs.counted_resources import device_claims, devices
from muster.gangs.quantity import INT64_MAX

MOST_PER_NODE: Final = 1024
"""A node offers at most so many of a resource; a larger number makes no difference to its pods."""

_DIGEST_BYTES: Final = 8


class Columns(NamedTuple):
    """Requested amounts by resource, and for each resource the claims of which a node offers a number."""

    amounts: Mapping[str, int]
    units: Mapping[str, tuple[Claim, ...]]


def columns_of(claims: Sequence[Claim]) -> Columns:
    """The resources that a pod with these unallocated claims requests."""
    amounts: dict[str, int] = {}
    units: dict[str, tuple[Claim, ...]] = {}

    def request(name: str, unit: tuple[Claim, ...], amount: int) -> None:
        amounts[name] = min(amounts.get(name, 0) + amount, INT64_MAX)
        units[name] = unit

    together = any(claim.constraints for claim in claims)
    for claim in claims:
        for each in claim.requests:
            counted = _counted(each)
            if counted is None:
                together = True
                continue
            if not counted.tolerations:
                plain = replace(counted, selectors=(), count=1)
                request(devices(counted.device_class), _unit(plain), counted.count)
            if counted.selectors or counted.tolerations:
                one = replace(counted, name="", count=1)
                selection = _digest((one.selectors, one.tolerations))
                request(devices(counted.device_class, selection), _unit(one), counted.count)
    if together:
        anonymous = tuple(Claim("", "", requests=each.requests, constraints=each.constraints) for each in claims)
        first = next((one.device_class for each in claims for way in each.requests for one in way.alternatives), "")
        request(device_claims(first, _digest(anonymous)), anonymous, 1)
    return Columns(amounts, units)


def _counted(request: Request) -> Alternative | None:
    """The request's only way, if it is a number of devices that are not shared."""
    if len(request.alternatives) != 1:
        return None
    [only] = request.alternatives
    return None if only.admin_access or not only.count else only


def _unit(alternative: Alternative) -> tuple[Claim, ...]:
    return (Claim("", "", requests=(Request("unit", (alternative,)),)),)


def _digest(value: object) -> str:
    return blake2b(msgspec.json.encode(value), digest_size=_DIGEST_BYTES).hexdigest()
