"""Gangs and gang groups as the coordinator sees them, with phases derived from what is known."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec.structs import replace

from muster.coordinator.core.cycle import ScheduleCycle
from muster.coordinator.core.events import Phase, Record, Seat
from muster.gangs.facts import GangFacts, MatchPolicy, ObjectReference, PodFacts
from muster.gangs.placing import Explanation

PLAIN = "plain"
"""The dialect of pods without any mark: gangs of one."""

QueueKey = tuple[int, int, int, str, str]


class SeatState(Enum):
    """How far a seat is on its way to a bound pod."""

    DECIDED = auto()
    """Reserved; the permit is not known to be durable."""
    SENT = auto()
    """Handed to binding."""
    RETRY = auto()
    """Binding failed; it is sent again when the time comes."""


@dataclass(slots=True, eq=False)
class HeldSeat:
    """A reservation and how far it is."""

    seat: Seat
    state: SeatState = SeatState.DECIDED
    repairs: bool = False
    """The member had a permitted seat before, and lost it."""
    failures: int = 0
    retry_at: float = 0.0


@dataclass(slots=True, eq=False)
class Gang:
    """One gang. Every member is in exactly one of: `waiting` (wants a seat), `seats` (has one that is not known to be
    bound), `acked` (binding says it is bound, cluster-state has not shown it yet), `bound` (seen on a node).
    """

    id: str
    group: "Group"
    facts: GangFacts | None = None
    pods: dict[str, PodFacts] = field(default_factory=dict)
    waiting: dict[str, PodFacts] = field(default_factory=dict)
    seats: dict[str, HeldSeat] = field(default_factory=dict)
    acked: dict[str, Seat] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Permitted pods that lost their seat and wait for another: what keeps the gang Repairing (I6)."""
    invalid: set[str] = field(default_factory=set)
    """Pods that could wait for a seat if nothing were wrong with themselves."""
    bind_trouble: str = ""
    """What kept binding, at the last failure, from binding some of `seats`; empty: nothing."""
    permitted: bool = False
    started: bool = False
    """All of the first permit's pods were seen bound once."""
    record: Record | None = None
    """What is, or is about to be, in etcd."""
    cycle: ScheduleCycle = field(default_factory=ScheduleCycle)
    attempts: int = 0
    """Tries so far in this term."""
    priorities: Counter[int] = field(default_factory=Counter)
    first_seen: float = 0.0
    start_seconds: float | None = None

    # -- pods

    def put_pod(self, pod: PodFacts) -> Seat | None:
        """Take in a pod's newest state. Returns the seat that it held and no longer needs, if any."""
        before = self.pods.get(pod.uid)
        if before is not None:
            self.priorities[before.priority] -= 1
        self.pods[pod.uid] = pod
        self.priorities[pod.priority] += 1
        if pod.problem and not pod.node and _may_run(pod) and not self.on_its_way(pod.uid):
            self.invalid.add(pod.uid)
        else:
            self.invalid.discard(pod.uid)
        if pod.node or not _may_run(pod) or (pod.problem and not self.on_its_way(pod.uid)):
            self.waiting.pop(pod.uid, None)
            self.lost.discard(pod.uid)
            seat = self._leave_seat(pod.uid)
            if pod.seated and not pod.deleting:
                self.bound.add(pod.uid)
            else:
                self.bound.discard(pod.uid)
            return seat
        if pod.uid not in self.seats and pod.uid not in self.acked:
            self.waiting[pod.uid] = pod
        return None

    def drop_pod(self, uid: str) -> Seat | None:
        """Forget a pod. Returns the seat that it held, if any."""
        pod = self.pods.pop(uid)
        self.priorities[pod.priority] -= 1
        self.waiting.pop(uid, None)
        self.bound.discard(uid)
        self.lost.discard(uid)
        self.invalid.discard(uid)
        return self._leave_seat(uid)

    def on_its_way(self, uid: str) -> bool:
        """Binding was told: the pod may be bound at any moment, under this gang's permit, whatever it is marked now."""
        held = self.seats.get(uid)
        return uid in self.acked or (held is not None and held.state is not SeatState.DECIDED)

    def take_seat(self, seat: Seat, state: SeatState = SeatState.DECIDED) -> None:
        """A waiting member gets a seat."""
        del self.waiting[seat.uid]
        self.seats[seat.uid] = HeldSeat(seat, state, repairs=seat.uid in self.lost)
        self.lost.discard(seat.uid)

    def resize_seat(self, pod: PodFacts) -> Seat | None:
        """The pod asks something else by now: so does the seat that it has, if any."""
        if (held := self.seats.get(pod.uid)) is not None:
            held.seat = replace(held.seat, class_id=pod.class_id)
            return held.seat
        if (seat := self.acked.get(pod.uid)) is not None:
            seat = self.acked[pod.uid] = replace(seat, class_id=pod.class_id)
        return seat

    def acknowledge(self, uid: str, node: str) -> Seat:
        """Binding says that the pod is bound, to this node."""
        seat = self.seats.pop(uid).seat
        if seat.node != node:
            seat = replace(seat, node=node)
        self.acked[uid] = seat
        return seat

    def _leave_seat(self, uid: str) -> Seat | None:
        held = self.seats.pop(uid, None)
        return held.seat if held is not None else self.acked.pop(uid, None)

    def lose_seat(self, uid: str) -> Seat:
        """A member that still wants to run loses its seat and is to be placed again."""
        held = self.seats.pop(uid)
        self.waiting[uid] = self.pods[uid]
        self.lost.add(uid)
        return held.seat

    def give_seat_back(self, uid: str) -> None:
        """A member's seat is not permitted after all: it stands where it stood before."""
        repairs = self.seats[uid].repairs
        self.lose_seat(uid)
        if not repairs:
            self.lost.discard(uid)

    # -- what follows

    @property
    def plain(self) -> bool:
        """A single pod without marks."""
        return self.facts is not None and self.facts.dialect == PLAIN

    @property
    def started_by_others(self) -> bool:
        """As many members as must start together run without a permit: somebody else bound them."""
        facts = self.facts
        if self.permitted or self.group.busy or facts is None or facts.blocked:
            return False
        return len(self.bound) >= max(1, facts.minimum)

    @property
    def members(self) -> int:
        """Pods that exist and may run: not ended, not being deleted, not gated, nothing wrong with them."""
        return len(self.waiting) + len(self.seats) + len(self.acked) + len(self.bound)

    @property
    def single(self) -> bool:
        """Its waiting members go one by one: it is being repaired, or has started and its match policy asks no more."""
        if not self.permitted or self.facts is None:
            return False
        return self.facts.match_policy is MatchPolicy.ONCE_SATISFIED or bool(self.lost) or not self.started

    @property
    def counted(self) -> int:
        """Members that count toward the minimum."""
        only_waiting = self.facts is not None and self.facts.match_policy is MatchPolicy.ONLY_WAITING
        return len(self.waiting) + len(self.seats) if only_waiting else self.members

    @property
    def minimum(self) -> int:
        """How many waiting members a try must place."""
        if self.facts is None or self.single:
            return 1
        return max(1, self.facts.minimum - (self.counted - len(self.waiting)))

    @property
    def priority(self) -> int:
        """The declared priority, else the highest of the pods'."""
        if self.facts is not None and self.facts.priority is not None:
            return self.facts.priority
        return max((priority for priority, count in self.priorities.items() if count > 0), default=0)

    @property
    def outstanding(self) -> list[Seat]:
        """Seats not known to be bound."""
        return [held.seat for held in self.seats.values()]

    @property
    def label(self) -> str:
        """Name for people: namespace/name."""
        return f"{self.facts.namespace}/{self.facts.name}" if self.facts is not None else self.id

    @property
    def reference(self) -> ObjectReference | None:
        """The object on which the user looks for the gang: its definition, else its first pod."""
        if self.facts is not None and self.facts.definition is not None:
            return self.facts.definition
        if not self.pods:
            return None
        pod = min(self.pods.values(), key=lambda pod: (pod.created_seconds, pod.name))
        return pod_reference(pod)

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        if self.permitted:
            if self.lost:
                return Phase.REPAIRING
            return Phase.BINDING if self.seats or not self.started else Phase.SATISFIED
        return self.group.phase


@dataclass(slots=True, eq=False)
class Group:
    """Gangs that are tried together: those of one gang group that have no permit yet, or one gang alone."""

    id: str
    gangs: list[Gang] = field(default_factory=list)
    gathering: str | None = None
    """Why it cannot be tried yet; None: it can."""
    solving: int | None = None
    persisting: int | None = None
    edited: bool = False
    """It changed while something was under way, so that what comes of that may be out of date."""
    refusals: int = 0
    """Answers in a row that could not be used."""
    explanation: Explanation | None = None
    trouble: str = ""
    """What went wrong at the last try besides lack of room; empty: nothing."""

    @property
    def key(self) -> QueueKey:
        """Place in the queue: what is half started first (I6), then priority, age, name."""
        first = min(self.gangs, key=_age)
        repairing = any(gang.lost for gang in self.gangs)
        return (0 if repairing else 1, -max(gang.priority for gang in self.gangs), *_age(first))

    @property
    def busy(self) -> bool:
        """Something about it is under way; it is not regrouped meanwhile."""
        return self.solving is not None or self.persisting is not None

    @property
    def wants_seats(self) -> bool:
        """There are members to place, and nothing under way for them."""
        return not self.busy and self.gathering is None and any(gang.waiting for gang in self.gangs)

    @property
    def phase(self) -> Phase:
        """Phase of its gangs while they have no permit."""
        if self.persisting is not None:
            return Phase.PERMITTED
        if self.solving is not None:
            return Phase.SOLVING
        return Phase.QUEUED if self.gathering is None else Phase.GATHERING


def pod_reference(pod: PodFacts) -> ObjectReference:
    """The pod as an object of events."""
    return ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid)


def plain_facts(pod: PodFacts) -> GangFacts:
    """A pod without marks as a gang of one."""
    return GangFacts(
        id=f"{PLAIN}/{pod.namespace}/{pod.name}",
        dialect=PLAIN,
        namespace=pod.namespace,
        name=pod.name,
        incarnation=pod.uid,
        minimum=1,
        total=1,
        created_seconds=pod.created_seconds,
    )


def _may_run(pod: PodFacts) -> bool:
    return not (pod.phase.ended or pod.deleting or pod.gated)


def _age(gang: Gang) -> tuple[int, str, str]:
    facts = gang.facts
    return (facts.created_seconds, facts.namespace, facts.name) if facts is not None else (0, "", gang.id)
