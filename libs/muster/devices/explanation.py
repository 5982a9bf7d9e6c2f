"""Explains why no node has the devices for claims: how many match each request, and why they cannot be used.

Generators: they yield after about DEVICES_PER_SLICE devices, so that an event loop is not held (I12). Objects may
change meanwhile; each pool is read in one piece.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from muster.devices.allocation import Devices
from muster.devices.facts import (
    Alternative,
    Claim,
    Constraint,
    Device,
    DeviceClass,
    DeviceId,
    DeviceTaint,
    Selection,
    Slice,
)
from muster.devices.pools import selected
from muster.gangs.facts import NodeFacts, TaintEffect
from muster.gangs.quoting import quoted

DEVICES_PER_SLICE: Final = 250
MAX_SHAPES: Final = 16
"""Shapes of nodes that are searched for one list of claims, each some 50 ms at most."""
_NODES_PER_SLICE: Final = 100
_MAX_RELAXATIONS: Final = 8
_EFFECTS: Final = {
    TaintEffect.NO_SCHEDULE: "NoSchedule",
    TaintEffect.PREFER_NO_SCHEDULE: "PreferNoSchedule",
    TaintEffect.NO_EXECUTE: "NoExecute",
}
_NAMED: Final = 3
"""Holders that are named."""

Holders = Mapping[DeviceId, str]
"""Names of the pods, gangs or claims that hold devices."""


class RequestShortage(Struct, frozen=True):
    """Devices for one request (or "request/subrequest") of a claim.

    `devices`: those of the class. One that the request's selectors match, too, counts in the first of these fields that
    applies: `unusable` (its pool is incomplete or invalid), `unsupported`, `elsewhere` (on other nodes), `taken`,
    `tainted`, `free`. `most_free`: no node has more. `excluded`: the selector that excludes most devices, and how many;
    that of the class if no device is of the class. `taint`: the one that most lack a toleration for, and how many.
    `features`: those because of which devices count as `unsupported`. `holders`: by which most are taken, and how many.
    `error`: the message of a selector that fails. `resource`: the extended resource that a container requests and the
    class backs; `request` is the container then, `claim` empty.
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
    taint: tuple[str, int] = ("", 0)
    features: tuple[str, ...] = ()
    holders: tuple[tuple[str, int], ...] = ()
    more_holders: int = 0
    problem: str = ""
    """Why a pool must not be used, the first one."""
    error: str = ""
    resource: str = ""

    @property
    def name(self) -> str:
        """The request, in words."""
        if self.resource:
            return f"extended resource {self.resource} of container {self.request}"
        return f"request {self.request} of ResourceClaim {self.claim}"

    @property
    def matching(self) -> int:
        """Devices of the class that the request's selectors match."""
        return self.unusable + self.unsupported + self.elsewhere + self.taken + self.tainted + self.free

    @property
    def short(self) -> bool:
        """No node has enough free devices for the request, even alone."""
        return self.most_free < max(self.wanted, 1)

    @property
    def would_help(self) -> str:
        """The change that would add most devices; empty if the request is not short."""
        if not self.short:
            return ""
        of_class = f"devices of class {quoted(self.device_class)}"
        ways = [
            (self.taken, f"devices that are taken become free: {self._taken_by}"),
            (self.tainted, f"the request tolerates the taint {quoted(self.taint[0])}, or drivers remove it"),
            (self.unusable, f"drivers publish whole pools: {self.problem}"),
            (self.elsewhere, f"the pods may use other nodes, which have {self.elsewhere} that match"),
            (self.unsupported, f"drivers publish devices without {' and '.join(self.features)}"),
        ]
        number, way = max(ways, key=lambda each: each[0])
        if number:
            return way
        if self.error and self.resource:
            return f"the selectors of class {quoted(self.device_class)} do not fail"
        if self.error:
            return f"the selectors of the request, or of class {quoted(self.device_class)}, do not fail"
        if self.devices and not self.matching:
            return f"other selectors: {quoted(self.excluded[0])} excludes {self.excluded[1]} {of_class}"
        return f"more {of_class} that match, at least {max(self.wanted, 1)} on one node"

    def __str__(self) -> str:
        wanted = _count(self.wanted, "device") if self.wanted else "all devices"
        text = f"{self.name} wants {wanted} of class {self.device_class}"
        expression, number = self.excluded
        excludes = f". The selector {quoted(expression)} excludes {number}" if expression else ""
        if not self.devices:
            none = self.error or (f"there are none{excludes}" if number else "there are no devices")
            return f"{text}: {none}"
        of_class = f" of {self.devices} match its selectors"
        text += f": {self.matching}{' match' if self.resource else of_class}"
        parts = (
            (self.unusable, f"in pools that are not complete or valid ({self.problem})"),
            (self.unsupported, f"with features that are not supported ({', '.join(self.features)})"),
            (self.elsewhere, "on nodes that the pods may not use"),
            (self.taken, f"taken by {self._taken_by}"),
            (self.tainted, f"with taints that it does not tolerate ({quoted(self.taint[0])})"),
            (self.free, f"free, at most {self.most_free} on one node"),
        )
        listed = [f"{count} {what}" for count, what in parts if count]
        text += f": {'; '.join(listed)}" if listed else ""
        return f"{text}{excludes}" + (f". {self.error}" if self.error else "")

    @property
    def _taken_by(self) -> str:
        named = ", ".join(f"{name} ({number})" for name, number in self.holders) or "others"
        return f"{named} and {self.more_holders} more" if self.more_holders else named


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shortages(
    devices: Devices, claims: Sequence[Claim], nodes: Sequence[NodeFacts], holders: Holders | None = None
) -> Generator[None, None, list[RequestShortage]]:
    """Figures for every request of the unallocated claims, and every subrequest.

    `nodes`: those that the pods could use otherwise. Looks at each device once per request, and at each node once per
    node selector: for reports, not for placement.
    """
    places, found = _Places(nodes), []
    for claim in claims:
        if claim.allocation is None:
            ways = [(request.path(each), each) for request in claim.requests for each in request.alternatives]
            for path, each in ways:
                shortage = yield from _shortage(devices, places, claim, path, each, holders or {})
                found.append(shortage)
    return found


class Conflict(NamedTuple):
    """Why claims cannot be allocated together although each request could be alone, and what would help."""

    why: str = ""
    would_help: str = ""


def conflict(devices: Devices, claims: Sequence[Claim], nodes: Sequence[NodeFacts]) -> Generator[None, None, Conflict]:
    """Finds the constraint without which the claims could be allocated, or that they compete. Empty if a node has the
    devices, or more than MAX_SHAPES of nodes would have to be searched.
    """
    waiting = [each for each in claims if each.allocation is None]
    fit = yield from _nodes_with(devices, waiting, nodes)
    if fit is None or fit:
        return Conflict()
    constraints = [(claim, each) for claim in waiting for each in claim.constraints]
    for claim, constraint in constraints[:_MAX_RELAXATIONS]:
        others = tuple(each for each in claim.constraints if each is not constraint)
        relaxed = [replace(each, constraints=others) if each is claim else each for each in waiting]
        if fit := (yield from _nodes_with(devices, relaxed, nodes)):
            why = f"no node has devices that meet the constraint {_in_words(constraint)} of ResourceClaim {claim.id}"
            return Conflict(why, f"without the constraint {_in_words(constraint)}, {_have_devices(fit)}")
    if len(constraints) > 1:
        relaxed = [replace(each, constraints=()) for each in waiting]
        if fit := (yield from _nodes_with(devices, relaxed, nodes)):
            why = "no node has devices that meet all constraints of the ResourceClaims"
            return Conflict(why, f"without these constraints, {_have_devices(fit)}")
    if sum(len(each.requests) for each in waiting) > 1:
        return Conflict("no node has the devices for all requests of a pod: they compete for the same ones")
    return Conflict("no node has the devices: they share counters with devices that are taken, or not all are free")


def _have_devices(nodes: int) -> str:
    return f"{nodes} node{' has' if nodes == 1 else 's have'} devices for a pod"


def _nodes_with(
    devices: Devices, claims: Sequence[Claim], nodes: Sequence[NodeFacts]
) -> Generator[None, None, int | None]:
    """Number of nodes on which the claims can be allocated together; None: too many shapes."""
    fit, first = 0, devices.computed
    for number, node in enumerate(nodes, start=1):
        before = devices.computed
        fit += bool(devices.how_many(node, claims, 1).number)
        if devices.computed - first > MAX_SHAPES and devices.pools.named_nodes is not None:
            return fit or None
        if devices.computed != before or number % _NODES_PER_SLICE == 0:
            yield
    return fit


def _in_words(constraint: Constraint) -> str:
    kind = "distinctAttribute" if constraint.distinct else "matchAttribute"
    return f"{kind} {quoted(constraint.attribute)}"


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


class _Tally:
    """Counts the devices of one request, by node, selector or taint, for one explanation, with which it ends (I11)."""

    def __init__(self, devices: Devices, places: _Places, device_class: DeviceClass, request: Alternative) -> None:
        self._devices, self._places, self._request = devices, places, request
        self._selectors = device_class.selectors + request.selectors
        self._of_class = len(device_class.selectors)
        self.figures: Counter[str] = Counter()
        self.in_class = 0
        self.excluded: Counter[str] = Counter()
        self.outside: Counter[str] = Counter()
        """Devices by the selector of the class that excludes them."""
        self.taints: Counter[str] = Counter()
        self.features: Counter[str] = Counter()
        self.free: Counter[str] = Counter()
        self.taken: list[DeviceId] = []
        self.error = self.problem = ""

    def add(self, slice_: Slice, problem: str) -> None:
        """Count the devices of a slice; `problem`: why its pool must not be used."""
        outcomes = self._devices.results.excluded_by(slice_, self._selectors)
        for device, outcome in zip(slice_.devices, outcomes, strict=True):
            index = -outcome - 1 if outcome < 0 else outcome
            self.in_class += index >= self._of_class
            if outcome < 0:
                self.error = self.error or self._devices.results.error(device, self._selectors[index])
            elif outcome < len(self._selectors):
                excluded = self.excluded if index >= self._of_class else self.outside
                excluded[self._selectors[index]] += 1
            else:
                self._add_matching(slice_, device, problem)

    def _add_matching(self, slice_: Slice, device: Device, problem: str) -> None:
        id_, request = DeviceId(slice_.driver, slice_.pool, device.name), self._request
        place = self._places.of(slice_, device)
        if problem:
            field, self.problem = "unusable", self.problem or f"pool {quoted(slice_.pool)} {problem}"
        elif device.unsupported is not None:
            field = "unsupported"
            self.features[device.unsupported] += 1
        elif place is None:
            field = "elsewhere"
        elif not request.admin_access and id_ in self._devices.allocated:
            field = "taken"
            self.taken.append(id_)
        elif (taint := request.untolerated(device)) is not None:
            field = "tainted"
            self.taints[_taint_in_words(taint)] += 1
        else:
            field = "free"
            self.free[place] += 1
        self.figures[field] += 1


def _taint_in_words(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{_EFFECTS[taint.effect]}"


def _shortage(
    devices: Devices, places: _Places, claim: Claim, path: str, request: Alternative, holders: Holders
) -> Generator[None, None, RequestShortage]:
    device_class = devices.classes.get(request.device_class)
    if device_class is None:
        error = f"DeviceClass {request.device_class} does not exist"
        return RequestShortage(claim.id, path, request.device_class, request.count, error=error)
    tally, seen = _Tally(devices, places, device_class, request), 0
    for key in tuple(devices.pools.keys):
        slices, problem = devices.pools.newest_of(key)
        for slice_ in slices:
            tally.add(slice_, problem)
            seen += len(slice_.devices) + 1
        if seen >= DEVICES_PER_SLICE:
            seen = 0
            yield
    by_holder = Counter(holders[each] for each in tally.taken if each in holders).most_common()
    everywhere = tally.free.pop("", 0)
    return RequestShortage(
        claim.id,
        path,
        request.device_class,
        request.count,
        devices=tally.in_class,
        most_free=everywhere + max(tally.free.values(), default=0),
        excluded=_most(tally.excluded if tally.in_class else tally.outside),
        taint=_most(tally.taints),
        features=tuple(name for name, _ in tally.features.most_common()),
        holders=tuple(by_holder[:_NAMED]),
        more_holders=len(by_holder[_NAMED:]),
        problem=tally.problem,
        error=tally.error,
        resource="",
        **tally.figures,
    )


def _most(counts: Counter[str]) -> tuple[str, int]:
    return counts.most_common(1)[0] if counts else ("", 0)
