"""What is decided and acted upon only when it is durable."""

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
    """Their records before."""


@dataclass(slots=True, frozen=True)
class TimeOut:
    """The pods of these gangs are marked: they waited too long."""

    gangs: Sequence[Gang]


@dataclass(slots=True, frozen=True)
class Victims:
    """Pods that make room: `reserved` give up reservations, `bound` are evicted, `whole` are gangs that go whole."""

    reserved: dict[Gang, list[str]] = field(default_factory=dict)
    bound: dict[Gang, list[str]] = field(default_factory=dict)
    whole: frozenset[Gang] = frozenset()


@dataclass(slots=True, frozen=True, eq=False)
class Plan:
    """These victims make room for a group; without `kept` for nobody: their own gang gives up."""

    victims: Victims
    kept: Nomination | None = None


@dataclass(slots=True, frozen=True, eq=False)
class PlanPart:
    """Some of a plan's victims: the plan does not come about without it."""

    plan: Plan


Decision = Permit | TimeOut | Plan | PlanPart
