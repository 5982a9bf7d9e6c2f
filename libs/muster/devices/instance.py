"""Builds instances of the allocation problem: classes of equal devices of one node, and the requests of claims.

Devices of a node are equal for a list of claims if the same requests select and tolerate them, the attributes that
constraints compare have equal values, and they consume equal counters. Attribute values and counters are numbered in
the order of their appearance, so that nodes whose devices differ in names and serial numbers only have equal instances.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from muster.devices.facts import Alternative, Attribute, Claim, DeviceClass, DeviceId, Request, Version
from muster.devices.pools import CounterKey, NodePool, SlicePart
from muster.devices.selectors import SelectorResults

_Identity = tuple[str, Attribute | str]
"""A value of an attribute with its type."""


class Option(NamedTuple):
    """An alternative of a slot. `bit`: its selection; `wanted` 0: all selected devices; `constraints`: indexes of those
    of the claim that apply.
    """

    bit: int
    wanted: int
    admin: bool
    constraints: tuple[int, ...]


class Slot(NamedTuple):
    """A request of claim number `claim` with its options, in order of preference."""

    claim: int
    options: tuple[Option, ...]


class Selection(NamedTuple):
    """Selectors of class and request, and tolerations; equal ones of several requests are one."""

    selectors: tuple[str, ...]
    alternative: Alternative


class Problem(NamedTuple):
    """Claims to allocate. `constraints` by claim: (index into `attributes`, distinct). `blocked`: why the claims can be
    allocated nowhere.
    """

    claims: tuple[Claim, ...]
    slots: tuple[Slot, ...]
    constraints: tuple[tuple[tuple[int, bool], ...], ...]
    attributes: tuple[str, ...]
    selections: tuple[Selection, ...]
    blocked: str = ""


class DeviceGroup(NamedTuple):
    """A class of equal devices: bits of the selections that select it and of those that also tolerate its taints,
    values of the attributes (-1: absent), consumed counters, numbers of devices.
    """

    selected: int
    usable: int
    values: tuple[int, ...]
    consumes: tuple[tuple[int, int], ...]
    free: int
    total: int


class Shape(NamedTuple):
    """Facts that decide an allocation on a node. `incomplete`: bits of selections that must not ask for all devices."""

    groups: tuple[DeviceGroup, ...]
    counters: tuple[int, ...]
    incomplete: int


class Member(NamedTuple):
    """A device of a group."""

    id: DeviceId
    part: SlicePart
    position: int
    free: bool


class Instance(NamedTuple):
    """The shape of a node, and the devices of each of its groups in the order of slices."""

    shape: Shape
    members: tuple[tuple[Member, ...], ...]


class PoolGroup(NamedTuple):
    """A class of equal devices of one pool. `values`: of the attributes, None: absent; `consumes`: amounts by counter.
    `members`: the devices, unless only their number matters.
    """

    selected: int
    usable: int
    values: tuple[_Identity | None, ...]
    consumes: tuple[tuple[CounterKey, int], ...]
    free: int
    total: int
    members: tuple[Member, ...]


class PoolInstance(NamedTuple):
    """The part of an instance that one pool is: its groups, the counters that remain, and `incomplete` as in Shape."""

    groups: tuple[PoolGroup, ...]
    counters: Mapping[CounterKey, int]
    incomplete: int

    def without_members(self) -> "PoolInstance":
        """The same numbers, without the devices."""
        return self._replace(groups=tuple(each._replace(members=()) for each in self.groups))


def problem_of(claims: Sequence[Claim], classes: Mapping[str, DeviceClass]) -> Problem:
    """The problem to allocate the claims together."""
    selections: dict[tuple[tuple[str, ...], tuple[object, ...]], int] = {}
    kept: list[Selection] = []
    attributes: dict[str, int] = {}
    slots: list[Slot] = []
    constraints: list[tuple[tuple[int, bool], ...]] = []
    blocked = ""
    for number, claim in enumerate(claims):
        if claim.unsupported:
            blocked = blocked or f"ResourceClaim {claim.id} is not supported: {claim.unsupported}"
        constraints.append(
            tuple((attributes.setdefault(each.attribute, len(attributes)), each.distinct) for each in claim.constraints)
        )
        for request in claim.requests:
            options = []
            for each in request.alternatives:
                device_class = classes.get(each.device_class)
                if device_class is None or device_class.unsupported is not None:
                    why = "does not exist" if device_class is None else f"uses {device_class.unsupported}"
                    blocked = blocked or (
                        f"ResourceClaim {claim.id}, request {request.path(each)}: DeviceClass {each.device_class} {why}"
                    )
                    continue
                selectors = device_class.selectors + each.selectors
                key = (selectors, each.tolerations)
                if key not in selections:
                    selections[key] = len(selections)
                    kept.append(Selection(selectors, each))
                options.append(
                    Option(1 << selections[key], each.count, each.admin_access, _applicable(claim, request, each))
                )
            slots.append(Slot(number, tuple(options)))
    return Problem(tuple(claims), tuple(slots), tuple(constraints), tuple(attributes), tuple(kept), blocked)


def _applicable(claim: Claim, request: Request, each: Alternative) -> tuple[int, ...]:
    path = request.path(each)
    return tuple(index for index, one in enumerate(claim.constraints) if one.applies(request.name, path))


def _identity(value: Attribute) -> _Identity:
    """Tells values of different types apart: True and 1 are equal in Python."""
    if isinstance(value, Version):
        return "version", value.text
    return type(value).__name__, value


def instance_of(
    problem: Problem,
    pools: Sequence[NodePool],
    allocated: Collection[DeviceId],
    results: SelectorResults,
) -> Instance:
    """The instance of a node with these pools."""
    shape, groups = _merged([pool_instance(problem, pool, allocated, results) for pool in pools])
    return Instance(shape, tuple(tuple(member for each in of for member in each.members) for of in groups))


def shape_of(pools: Sequence[PoolInstance]) -> Shape:
    """The shape of a node with these pools."""
    return _merged(pools)[0]


def _merged(pools: Sequence[PoolInstance]) -> tuple[Shape, list[list[PoolGroup]]]:
    """The shape, and for each of its groups those of pools."""
    numbers: dict[tuple[int, _Identity], int] = {}
    counter_numbers: dict[tuple[int, CounterKey], int] = {}
    counters: list[int] = []
    groups: dict[tuple[int, int, tuple[int, ...], tuple[tuple[int, int], ...]], list[PoolGroup]] = {}
    incomplete = 0
    for number, pool in enumerate(pools):
        incomplete |= pool.incomplete
        for group in pool.groups:
            consumes = []
            for counter, amount in group.consumes:
                key = (number, counter)
                if key not in counter_numbers:
                    counter_numbers[key] = len(counters)
                    counters.append(pool.counters[counter])
                consumes.append((counter_numbers[key], amount))
            values = tuple(
                -1 if value is None else numbers.setdefault((attribute, value), len(numbers))
                for attribute, value in enumerate(group.values)
            )
            groups.setdefault((group.selected, group.usable, values, tuple(consumes)), []).append(group)
    shaped = tuple(
        DeviceGroup(*key, sum(each.free for each in of), sum(each.total for each in of)) for key, of in groups.items()
    )
    return Shape(shaped, tuple(counters), incomplete), list(groups.values())


def pool_instance(
    problem: Problem, pool: NodePool, allocated: Collection[DeviceId], results: SelectorResults
) -> PoolInstance:
    """The classes of equal devices of one pool."""
    every = (1 << len(problem.selections)) - 1
    if pool.problem:
        return PoolInstance((), {}, every)
    counters: dict[CounterKey, int] = {}
    groups: dict[tuple[int, int, tuple[_Identity | None, ...], tuple[tuple[CounterKey, int], ...]], list[Member]] = {}
    incomplete = 0
    for part in pool.parts:
        outcomes = [results.excluded_by(part.slice, each.selectors) for each in problem.selections]
        for index, device in part.devices():
            selected = usable = 0
            id_ = DeviceId(pool.driver, pool.name, device.name)
            for number, selection in enumerate(problem.selections):
                outcome = outcomes[number][index]
                if outcome == len(selection.selectors):
                    selected |= 1 << number
                    if selection.alternative.tolerates(device):
                        usable |= 1 << number
                    continue
                if outcome < 0:
                    incomplete |= 1 << number
            if not selected:
                continue
            if device.unsupported is not None:
                incomplete |= selected
                continue
            if device.consumes and not counters:
                counters = _available(pool, allocated)
            consumes: tuple[tuple[CounterKey, int], ...] = ()
            if device.consumes:
                consumes = tuple(((of.name, name), amount) for of in device.consumes for name, amount in of.counters)
            values: tuple[_Identity | None, ...] = ()
            if problem.attributes:
                values = tuple(
                    None if (value := device.attributes.get(attribute)) is None else _identity(value)
                    for attribute in problem.attributes
                )
            members = groups.setdefault((selected, usable, values, consumes), [])
            members.append(Member(id_, part, index, id_ not in allocated))
    return PoolInstance(
        tuple(
            PoolGroup(*key, sum(each.free for each in members), len(members), tuple(members))
            for key, members in groups.items()
        ),
        counters,
        incomplete,
    )


def _available(pool: NodePool, allocated: Collection[DeviceId]) -> dict[CounterKey, int]:
    """Counters that remain; all are negative if more of one is allocated than there is."""
    available = dict(pool.counters)
    for id_, consumes in pool.consumers:
        if id_ in allocated:
            for consumed in consumes:
                for name, amount in consumed.counters:
                    available[consumed.name, name] -= amount
    return dict.fromkeys(available, -1) if any(value < 0 for value in available.values()) else available
