"""Devices of a simulated node, and the claims that they are prepared for.

A claim for a device that the node does not have, or that is in use, is not prepared, which reveals a scheduler that
allocates wrongly. Devices of other drivers, and of nodes without simulated devices, are prepared without checks.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from muster.gangs.quantity import parse_quantity
from muster.localcluster.kubelets.devices.cards import DRIVER, Cards, slice_specs
from muster.localcluster.kubelets.devices.claims import ResourceClaim, Result

CounterName = tuple[str, str]
"""Counter set and counter of a pool."""
Counters = dict[CounterName, int]
"""Amounts in billionths of a unit."""


class NodeDevices:
    """Devices of one node."""

    def __init__(self, node: str, cards: Cards) -> None:
        self._node = node
        self._consumption: dict[str, Counters] = {}  # by device
        self._shared: Counters = {}
        for spec in slice_specs(node, cards):
            for device in spec.get("devices") or ():
                self._consumption[device["name"]] = _counters(device.get("consumesCounters") or (), "counterSet")
            self._shared |= _counters(spec.get("sharedCounters") or (), "name")
        self._users: dict[str, set[str]] = {}  # claim uid -> uids of pods; an entry ends with its last pod
        self._owners: dict[str, str] = {}  # device -> claim uid
        self._consumed: Counters = {}

    def prepare(self, claims: Sequence[ResourceClaim], pod: str) -> str:
        """Prepare all devices of a pod's claims, or none. Returns why not; empty: they are prepared. `pod`: uid."""
        owners, consumed = dict(self._owners), dict(self._consumed)
        for claim in claims:
            uid = claim.metadata.uid
            if uid not in self._users:
                for result in _own_results(claim):
                    if problem := self._take(uid, result, owners, consumed):
                        return f"NodePrepareResources failed for ResourceClaim {claim.metadata.name}: {problem}"
        self._owners, self._consumed = owners, consumed
        for claim in claims:
            self._users.setdefault(claim.metadata.uid, set()).add(pod)
        return ""

    def release(self, pod: str) -> bool:
        """Release the devices of claims that no other pod uses. False: there were none."""
        unused = {claim for claim, users in self._users.items() if users == {pod}}
        for users in self._users.values():
            users.discard(pod)
        if not unused:
            return False
        for claim in unused:
            del self._users[claim]
        for device in [device for device, owner in self._owners.items() if owner in unused]:
            del self._owners[device]
            for counter, amount in self._consumption[device].items():
                self._consumed[counter] -= amount
        return True

    def _take(self, claim: str, result: Result, owners: dict[str, str], consumed: Counters) -> str:
        consumption = self._consumption.get(result.device)
        if result.pool != self._node or consumption is None:
            return f"node {self._node} has no device {result}"
        if result.admin_access:
            return ""
        if result.device in owners:
            return f"device {result} is prepared for another claim"
        owners[result.device] = claim
        for counter, amount in consumption.items():
            consumed[counter] = consumed.get(counter, 0) + amount
            if consumed[counter] > self._shared[counter]:
                return f"device {result} needs more of counter {'/'.join(counter)} than other devices have left"
        return ""


def _own_results(claim: ResourceClaim) -> Iterable[Result]:
    return (each for each in claim.results if each.driver == DRIVER)


def _counters(counter_sets: Iterable[Any], name_field: str) -> Counters:
    return {
        (each[name_field], counter): parse_quantity(amount["value"])
        for each in counter_sets
        for counter, amount in each["counters"].items()
    }
