"""Explains why no node has the devices for claims: how many match each request, and why they cannot be used."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from muster.devices.allocation import Devices
from muster.devices.facts import Alternative, Claim, Device, DeviceId, Selection, Slice
from muster.devices.pools import selected
from muster.gangs.facts import NodeFacts
from muster.gangs.quoting import quoted


class RequestShortage(Struct, frozen=True):
    """Devices for one request (or "request/subrequest") of a claim.

    A device that matches counts in the first of these fields that applies: `unusable` (its pool is incomplete or
    invalid), `unsupported`, `elsewhere` (on other nodes), `taken`, `tainted`, `free`. `most_free`: no node has more.
    `excluded`: the selector that excludes most devices, and how many. `error`: the message of a selector that fails.
    """

    claim: str
    request: str
    device_class: str
    wanted: int = 1
    devices: int = 0
    unusable: int = 0
    unsupported: int = 0
    elsewhere: int = 0
    taken: int = 0
    tainted: int = 0
    free: int = 0
    most_free: int = 0
    excluded: tuple[str, int] = ("", 0)
    error: str = ""

    @property
    def matching(self) -> int:
        """Devices that the selectors match."""
        return self.unusable + self.unsupported + self.elsewhere + self.taken + self.tainted + self.free

    @property
    def short(self) -> bool:
        """No node has enough free devices for the request, even alone."""
        return self.most_free < max(self.wanted, 1)

    def __str__(self) -> str:
        wanted = f"{self.wanted} device{'' if self.wanted == 1 else 's'}" if self.wanted else "all devices"
        text = f"ResourceClaim {self.claim}, request {self.request} for {wanted} of class {self.device_class}: "
        if not self.devices:
            return f"{text}{self.error or 'there are no devices'}"
        text += f"{self.matching} of {self.devices} devices match its selectors"
        parts = (
            (self.unusable, "are in incomplete or invalid pools"),
            (self.unsupported, "use features that are not supported"),
            (self.elsewhere, "are on other nodes"),
            (self.taken, "are taken"),
            (self.tainted, "have taints that it does not tolerate"),
            (self.free, f"are free, at most {self.most_free} on one node"),
        )
        listed = [f"{number} {what}" for number, what in parts if number]
        text += f": {'; '.join(listed)}" if listed else ""
        expression, number = self.excluded
        if expression:
            text += f". The selector {quoted(expression)} excludes {number}"
        return f"{text}. {self.error}" if self.error else text


def shortages(devices: Devices, claims: Sequence[Claim], nodes: Sequence[NodeFacts]) -> list[RequestShortage]:
    """Figures for every request of the unallocated claims, and every subrequest.

    `nodes`: those that the pods could use otherwise. Looks at each device once per request, and at each node once per
    node selector: for reports, not for placement.
    """
    places = _Places(nodes)
    return [
        _shortage(devices, places, claim, request.path(each), each)
        for claim in claims
        if claim.allocation is None
        for request in claim.requests
        for each in request.alternatives
    ]


class _Places:
    """Whether one of the nodes can use a device, and which if it is local to one."""

    def __init__(self, nodes: Sequence[NodeFacts]) -> None:
        self._nodes = nodes
        self._names = {each.name for each in nodes}
        self._selectors: dict[Selection, bool] = {}

    def of(self, slice_: Slice, device: Device) -> str | None:
        """The node of a local device, "" if it is not local to one, None if none of the nodes can use it."""
        source: Slice | Device = device if slice_.per_device else slice_
        if source.node_name:
            return source.node_name if source.node_name in self._names else None
        if source.all_nodes:
            return "" if self._names else None
        if source.node_selector not in self._selectors:
            matching = any(selected(node, "", False, source.node_selector) for node in self._nodes)
            self._selectors[source.node_selector] = matching
        return "" if self._selectors[source.node_selector] else None


def _shortage(devices: Devices, places: _Places, claim: Claim, path: str, request: Alternative) -> RequestShortage:
    device_class = devices.classes.get(request.device_class)
    if device_class is None:
        error = f"DeviceClass {request.device_class} does not exist"
        return RequestShortage(claim.id, path, request.device_class, request.count, error=error)
    selectors = device_class.selectors + request.selectors
    figures: Counter[str] = Counter()
    excluded: Counter[str] = Counter()
    free: Counter[str] = Counter()
    total, error = 0, ""
    for slices, problem in devices.pools.newest():
        for slice_ in slices:
            outcomes = devices.results.excluded_by(slice_, selectors)
            for device, outcome in zip(slice_.devices, outcomes, strict=True):
                total += 1
                if outcome < 0:
                    error = error or devices.results.error(device, selectors[-outcome - 1])
                elif outcome < len(selectors):
                    excluded[selectors[outcome]] += 1
                else:
                    field = _field(devices, places, slice_, device, request, problem)
                    figures[field] += 1
                    if field == "free":
                        free[places.of(slice_, device) or ""] += 1
    everywhere = free.pop("", 0)
    return RequestShortage(
        claim.id,
        path,
        request.device_class,
        request.count,
        devices=total,
        most_free=everywhere + max(free.values(), default=0),
        excluded=excluded.most_common(1)[0] if excluded else ("", 0),
        error=error,
        **figures,
    )


def _field(devices: Devices, places: _Places, slice_: Slice, device: Device, request: Alternative, problem: str) -> str:
    """The field in which a device counts that the selectors match."""
    if problem:
        return "unusable"
    if device.unsupported is not None:
        return "unsupported"
    if places.of(slice_, device) is None:
        return "elsewhere"
    if not request.admin_access and DeviceId(slice_.driver, slice_.pool, device.name) in devices.allocated:
        return "taken"
    return "free" if request.tolerates(device) else "tainted"
