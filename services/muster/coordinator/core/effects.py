"""Outputs of the state machine: requests to other services, writes to etcd, reports to users, rejected answers."""

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from muster.coordinator.core.events import PodName, Record, Seat
from muster.devices.extended_resources import RequestMapping
from muster.gangs.facts import ObjectReference
from muster.gangs.solve import (
    NominatedCapacity,
    PotentialVictim,
    Reservation,
    SolveGroup,
)


class Solve(Struct, frozen=True):
    """A solve request. Answered by Solved or SolveFailed."""

    solve_id: int
    min_revision: dict[str, int]
    reservations: tuple[Reservation, ...]
    groups: tuple[SolveGroup, ...]
    nominated: tuple[NominatedCapacity, ...] = ()
    potential_victims: tuple[PotentialVictim, ...] = ()


class Persist(Struct, frozen=True):
    """Write to etcd, all or nothing, in the order of the ids. Answered by Persisted or NotPersisted; other failures end
    the term.
    """

    persist_id: int
    puts: tuple[Record, ...] = ()
    deletes: tuple[str, ...] = ()
    awaited: bool = True
    """A decision waits for it. Others may be written somewhat later, together with more."""


class DeviceWrite(Struct, frozen=True):
    """A ResourceClaim of a pod, to be written before the pod is bound. `allocation`: JSON of its status.allocation;
    empty: it has one. `group_name` and `group_uid`: the PodGroup that it is reserved for instead of the pod, if any.
    """

    name: str
    uid: str
    allocation: bytes = b""
    group_name: str = ""
    group_uid: str = ""


class ExtendedClaimWrite(Struct, frozen=True):
    """The ResourceClaim to create for a pod's extended resources, before the pod is bound: JSON of its spec and of its
    status.allocation, and which request each container uses.
    """

    spec: bytes
    allocation: bytes
    mappings: tuple[RequestMapping, ...]


class Bind(Struct, frozen=True):
    """Bind these pods of one gang, or of gangs that start together. Answered by BindResults and BindCallFailed, each
    pod in exactly one.

    `gang` is the only gang or the first; `partners` are the ids of the gangs of pods of others, by uid. `ranks` and
    `claims` are by uid: the member's rank, and its volume claims that need the selected node. `tries` are the attempts
    so far, by gang. `claims_first`: none is bound before the claims of all are. `devices`, by uid: the ResourceClaims
    that are written before; `extended`, by uid: those that are created.
    """

    gang: str
    seats: tuple[Seat, ...]
    ranks: dict[str, int] = {}
    claims: dict[str, tuple[str, ...]] = {}
    tries: dict[str, int] = {}
    claims_first: bool = False
    partners: dict[str, str] = {}
    devices: dict[str, tuple[DeviceWrite, ...]] = {}
    extended: dict[str, ExtendedClaimWrite] = {}

    @property
    def gangs(self) -> list[str]:
        """Ids of all gangs."""
        return list(dict.fromkeys((self.gang, *self.partners.values())))

    def gang_of(self, uid: str) -> str:
        """Id of the pod's gang."""
        return self.partners.get(uid, self.gang)


class StaleClaim(Struct, frozen=True):
    """A ResourceClaim that is allocated to pods with neither a node nor a seat. `version`: its resourceVersion;
    `pods`: all pods that use it, one at least; `groups`: uids of the PodGroups that it is reserved for.
    """

    name: str
    uid: str
    version: str
    pods: tuple[PodName, ...]
    groups: tuple[str, ...] = ()


class Deallocate(Struct, frozen=True):
    """Remove the allocations of these claims of one gang's pods, if they are as they were observed and the pods are not
    bound. Answered by DeallocateResults or DeallocateCallFailed.
    """

    gang: str
    claims: tuple[StaleClaim, ...]


class Evict(Struct, frozen=True):
    """Evict these pods of one gang. Answered by EvictResults and EvictCallFailed, each pod in exactly one."""

    gang: str
    pods: tuple[PodName, ...]


class MarkTimedOut(Struct, frozen=True):
    """Add the dialect's timeout mark to these pods of a gang, or remove it. Not answered: the pods are observed with
    or without it.
    """

    gang: str
    pods: tuple[PodName, ...]
    timed_out: bool


class PodCondition(Struct, frozen=True):
    """PodScheduled=False with this reason and message, and status.nominatedNodeName: the node on which the pod holds
    capacity, if any. Autoscalers add nodes where the reason is Unschedulable.
    """

    uid: str
    namespace: str
    name: str
    reason: str
    message: str
    nominated_node: str = ""
    first: bool = False
    """This leader has written none to the pod."""
    changed: bool = False
    """This leader has written one with another reason or message."""


class EventType(StrEnum):
    """Types of Kubernetes events."""

    NORMAL = "Normal"
    WARNING = "Warning"


class KubeEvent(Struct, frozen=True):
    """A Kubernetes event."""

    regarding: ObjectReference
    type: EventType
    reason: str
    note: str


class Report(Struct, frozen=True):
    """Conditions and events for users. Not answered."""

    gang: str
    conditions: tuple[PodCondition, ...] = ()
    events: tuple[KubeEvent, ...] = ()


class Phase(IntEnum):
    """Phases of a gang; values as in the proto."""

    GATHERING = 1
    QUEUED = 2
    SOLVING = 3
    WAITING = 4
    PERMITTED = 5
    BINDING = 6
    SATISFIED = 7
    REPAIRING = 8
    TIMED_OUT = 9
    ENDED = 10


class PhaseChanged(Struct, frozen=True):
    """A gang's phase changed; `before` is None for a new gang, `after` is None for one that is gone."""

    gang: str
    before: Phase | None
    after: Phase | None


class RejectionReason(StrEnum):
    """Reasons of rejections; the values are labels of a metric."""

    UNDECODABLE = "undecodable response"
    MISSING = "missing from the response"
    MALFORMED = "does not match the request"
    INCOMPLETE = "below the minimum"
    UNKNOWN = "unknown node or pod class"
    FILTERED = "node rejected by a filter"
    INSUFFICIENT_CAPACITY = "insufficient free capacity"
    INVALID_VICTIMS = "invalid victims"
    CONSTRAINT = "hard constraint violated"
    CONFLICT = "capacity taken by a concurrent solve"
    """No replica made a mistake."""


class Rejection(NamedTuple):
    """Why an answer, or a part of it, is rejected; `node` is the node that it concerns, if it concerns one."""

    reason: RejectionReason
    message: str
    node: str = ""


class AnswerRejected(Struct, frozen=True):
    """A placement answer about a gang's group was rejected; `count` rejections were for this reason, in this term."""

    gang: str
    reason: str
    message: str
    count: int


CLAIM_ENDS: Final = (
    ("nomination", "victims_remain"),
    ("nomination", "capacity_taken"),
    ("reservation", "expired"),
    ("reservation", "overrun"),
    ("hold", "timed_out"),
)
"""Kinds of claims on capacity, and how they end without a start; labels of a metric."""


class ClaimEnded(Struct, frozen=True):
    """A claim on capacity ended by its limit, or in vain (I13); one of CLAIM_ENDS."""

    kind: str
    reason: str


class GangChanged(Struct, frozen=True):
    """State of a gang that is shown to users may have changed."""

    gang: str


class StageChanged(Struct, frozen=True):
    """A gang reached another stage (see muster.dialects.progress), or another object defines it."""

    gang: str


Effect = (
    Solve
    | Persist
    | Bind
    | Deallocate
    | Evict
    | MarkTimedOut
    | Report
    | PhaseChanged
    | AnswerRejected
    | ClaimEnded
    | GangChanged
    | StageChanged
)
