"""What a gang has come to, in words of no dialect, and what a dialect wants written of it.

The coordinator knows how far a gang is; a dialect knows in which words its users look for that, and on which objects.
A dialect that says nothing of it needs no `tell`.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Any

from msgspec import Struct

from muster.gangs.facts import GangFacts, ObjectReference


class Stage(Enum):
    """How far a gang is."""

    GATHERING = auto()
    """Its definition or some of its members are missing, or something is wrong with them."""
    READY = auto()
    """All that must start together is there; it waits for its turn or for room."""
    ASSIGNED = auto()
    """Its members have places, which are being made durable."""
    PERMITTED = auto()
    """That is durable: it starts, and its pods are being bound. Also while pods that lost a place get another."""
    BOUND = auto()
    """All that was permitted is bound."""
    TIMED_OUT = auto()
    """It waited too long, and is not tried before its user does something."""
    PREEMPTED = auto()
    """It is being evicted for another gang, or was and has not been ready since."""


class MemberProgress(Struct, frozen=True):
    """A member. `node` and `domains` (names from the top of the tree to the node's parent) are empty while it has no
    place; `rank` is None while it has none; `tries` counts the tries of its gang so far.
    """

    uid: str
    name: str
    node: str = ""
    domains: tuple[str, ...] = ()
    rank: int | None = None
    tries: int = 0
    bound: bool = False


class Progress(Struct, frozen=True):
    """How far a gang is. Times are in seconds since 1970 UTC, 0: not yet, or not known since the coordinator changed.

    `root` and `levels` name the topology tree and its levels, from the top to the nodes. `began`: all members were
    there. `ended`: all were bound. `solver_seconds` is what placement took for it, in all its tries. `preemptor` is the
    id of the gang that it was evicted for. `reason` is why it is not running; empty: nothing to say.
    """

    facts: GangFacts
    stage: Stage
    members: tuple[MemberProgress, ...] = ()
    reason: str = ""
    root: str = ""
    levels: tuple[str, ...] = ()
    began: float = 0.0
    ended: float = 0.0
    solver_seconds: float = 0.0
    preemptor: str = ""


class WriteRule(IntEnum):
    """When a condition is written, by what the object has of its type; values as in the proto."""

    ALWAYS = 0
    UNLESS_TRUE = 1
    """Once it is "True" it is final."""
    IF_PRESENT = 2
    """Only in place of one that is there."""


class ObjectCondition(Struct, frozen=True):
    """A metav1.Condition to be set in an object's status."""

    type: str
    status: str
    reason: str
    message: str = ""
    write_rule: WriteRule = WriteRule.ALWAYS


class ObjectWrite(Struct, frozen=True):
    """Fields to be set on an object. `plural` as paths have it; `subresource` is "status" or empty; `patch` is a JSON
    merge patch; `conditions` replace those of their types.
    """

    object: ObjectReference
    plural: str
    subresource: str = ""
    patch: Mapping[str, Any] = {}
    conditions: tuple[ObjectCondition, ...] = ()


class PodWrite(Struct, frozen=True):
    """Labels and annotations of a member, by key; None: to be removed."""

    uid: str
    name: str
    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}


class Writes(Struct, frozen=True):
    """What is to be written of a gang's progress."""

    objects: tuple[ObjectWrite, ...] = ()
    pods: tuple[PodWrite, ...] = ()
