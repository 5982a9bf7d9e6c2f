"""Decisions that take effect when they are durable in etcd (I2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.coordinator.core.events import Record
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.preemption.nomination import Nomination


@dataclass(slots=True, frozen=True)
class Permit:
    """These gangs of the group may bind."""

    group: Group
    gangs: Sequence[Gang]
    before: Sequence[Record | None]
    """The records of the gangs before."""


@dataclass(slots=True, frozen=True)
class TimeOut:
    """The pods of these gangs, which waited too long, are marked as timed out."""

    gangs: Sequence[Gang]


@dataclass(slots=True, frozen=True)
class Victims:
    """Victims by gang: pods in `reserved` lose their reservations, in `bound` are evicted; gangs in `whole` are evicted
    whole.
    """

    reserved: dict[Gang, list[str]] = field(default_factory=dict)
    bound: dict[Gang, list[str]] = field(default_factory=dict)
    whole: frozenset[Gang] = frozenset()


@dataclass(slots=True, frozen=True, eq=False)
class Plan:
    """Eviction of victims for the group of the nomination; without one, by the repair policy of their own gang."""

    victims: Victims
    nomination: Nomination | None = None


@dataclass(slots=True, frozen=True, eq=False)
class PlanPart:
    """A transaction with some of a plan's victims: the plan needs it."""

    plan: Plan


Decision = Permit | TimeOut | Plan | PlanPart
