"""Progress of a gang, independent of dialects, and the writes by which a dialect reports it.

The coordinator fills in Progress. A dialect that reports progress turns it into conditions, fields and labels on the
objects where its users look for them (Dialect.write_progress).
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Any

from msgspec import Struct

from muster.gangs.facts import GangFacts, ObjectReference


class Stage(Enum):
    """The stage that a gang has reached."""

    GATHERING = auto()
    """The definition or some members are missing or invalid."""
    READY = auto()
    """Complete: it waits for its turn or for free capacity."""
    ASSIGNED = auto()
    """Members are assigned to nodes, and the permit is being persisted."""
    PERMITTED = auto()
    """The permit is durable and its pods are being bound, or bound again after losing their nodes."""
    BOUND = auto()
    """All permitted pods are bound."""
    ENDED = auto()
    """It has started, and no member is left that runs or waits."""
    TIMED_OUT = auto()
    """Waiting time exceeded; the gang is not tried until its user acts."""
    PREEMPTED = auto()
    """Evicted for another gang, now or since the gang was last complete."""


class MemberProgress(Struct, frozen=True):
    """A member. `node` and `domains` (names from the top of the tree to the node's parent) are empty while it has no
    node; `rank` is None while it has none; `attempts` counts the attempts to schedule its gang so far.
    """

    uid: str
    name: str
    node: str = ""
    domains: tuple[str, ...] = ()
    rank: int | None = None
    attempts: int = 0
    bound: bool = False


class Progress(Struct, frozen=True):
    """Progress of a gang. Times are in seconds since 1970 UTC; 0: not yet, or unknown after a change of leader.

    `root` and `levels` name the topology tree and its levels, from the top to the nodes. `began` is when the gang was
    complete, `ended` when all members were bound. `solver_seconds` is the time that placement took for it, over all
    attempts. `preemptor` is the id of the gang that preempted it. `reason` is why it is not running; empty if there is
    nothing to report.
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
    """When a condition is written, by the object's current condition of that type; values as in the proto."""

    ALWAYS = 0
    UNLESS_TRUE = 1
    """A condition that is "True" is final."""
    IF_PRESENT = 2
    """Only replaces an existing condition."""


class ObjectCondition(Struct, frozen=True):
    """A metav1.Condition to set in an object's status."""

    type: str
    status: str
    reason: str
    message: str = ""
    write_rule: WriteRule = WriteRule.ALWAYS


class ObjectWrite(Struct, frozen=True):
    """Fields to set on an object. `plural` is the resource name in paths; `subresource` is "status" or empty; `patch`
    is a JSON merge patch; `conditions` replace those of the same types.
    """

    object: ObjectReference
    plural: str
    subresource: str = ""
    patch: Mapping[str, Any] = {}
    conditions: tuple[ObjectCondition, ...] = ()


class PodWrite(Struct, frozen=True):
    """Labels and annotations to set on a member, by key. None removes a key."""

    uid: str
    name: str
    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}


class Writes(Struct, frozen=True):
    """All writes that report a gang's progress."""

    objects: tuple[ObjectWrite, ...] = ()
    pods: tuple[PodWrite, ...] = ()
