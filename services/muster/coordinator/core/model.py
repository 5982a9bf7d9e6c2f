"""Gangs and gang groups as the coordinator sees them, with phases derived from what is known."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from muster.coordinator.core.cycle import ScheduleCycle
from muster.coordinator.core.events import Phase, PodName, Record, Seat
from muster.coordinator.core.seats import HeldSeat, LeavingPod, SeatState
from muster.gangs.facts import GangFacts, LevelConstraint, MatchPolicy, ObjectReference, PodFacts, PodPhase
from muster.gangs.placing import Explanation, PodsOnNode

PLAIN = "plain"
"""The dialect of pods without any mark: gangs of one."""

QueueKey = tuple[int, int, int, str, str]

Shape = tuple[object, ...]
"""What a group asks of placement, without its names: groups of one shape fit where the others do."""


@dataclass(slots=True, eq=False)
class Gang:
    """One gang. Every member is in exactly one of: `waiting` (wants a seat), `seats` (has one that is not known to be
    bound), `acked` (binding says it is bound, cluster-state has not shown it yet), `bound` (seen on a node), `leaving`
    (on a node, and to be evicted).
    """

    id: str
    group: "Group"
    facts: GangFacts | None = None
    constraints: tuple[LevelConstraint, ...] = ()
    """Those that it declares, on the levels of its tree."""
    pods: dict[str, PodFacts] = field(default_factory=dict)
    waiting: dict[str, PodFacts] = field(default_factory=dict)
    seats: dict[str, HeldSeat] = field(default_factory=dict)
    acked: dict[str, Seat] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Permitted pods that lost their seat and wait for another: what keeps the gang Repairing (I6)."""
    leaving: dict[str, LeavingPod] = field(default_factory=dict)
    eviction_begun: bool = False
    """Binding was told of some of `leaving`."""
    leaves_whole: bool = False
    """All its pods are to be evicted; then it starts anew."""
    evicted_for: str = ""
    """Id of the gang that needs the room of `leaving`; empty: it leaves by its own repair policy."""
    succeeded: set[str] = field(default_factory=set)
    """Pods that have done their work."""
    invalid: set[str] = field(default_factory=set)
    """Pods that could wait for a seat if nothing were wrong with themselves."""
    waiting_since: float | None = None
    """When the first of the seats was reserved that it waits with, without a permit (NonStrict)."""
    waiting_since_unix_millis: int = 0
    timing_out: set[str] = field(default_factory=set)
    """Pods of a gang that waited too long which have not been seen with the mark for that yet."""
    marked: set[str] = field(default_factory=set)
    """Pods that bear the mark, and so are not tried."""
    unmarking: set[str] = field(default_factory=set)
    """Pods from which the mark is being taken off."""
    timed_out_declaration: str = ""
    """What it declared when it had waited too long; a gang that declares something else by now is tried again."""
    repairing_since: float | None = None
    kept_room: tuple[PodsOnNode, ...] = ()
    """Room that is kept for its group, kept with the first gang of it."""
    bind_trouble: str = ""
    """What kept binding, at the last failure, from binding some of `seats`; empty: nothing."""
    avoided: set[str] = field(default_factory=set)
    """Nodes on which pods could not be bound, as long as there is trouble."""
    permitted: bool = False
    started: bool = False
    """All of the first permit's pods were seen bound once."""
    record: Record | None = None
    """What is, or is about to be, in etcd."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Ranks by uid, as they are known to be durable."""
    cycle: ScheduleCycle = field(default_factory=ScheduleCycle)
    attempts: int = 0
    """Tries so far in this term."""
    earlier_tries: int = 0
    """Tries in earlier terms, as far as they were recorded."""
    permitted_tries: int = 0
    """Tries until its last permit, as they are known to be durable."""
    began_unix: float = 0.0
    """When all that must start together was there for the first time since it was last taken back; 0: never, or not
    known. So is `ended_unix`: when all of that was bound.
    """
    ended_unix: float = 0.0
    solver_seconds: float = 0.0
    """For so long placement had questions of its group, in this term."""
    preempted_by: str = ""
    """Id of the gang that the whole of it was evicted for, until it could start again."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Answers of placement that were not taken, in this term, by reason."""
    priorities: Counter[int] = field(default_factory=Counter)
    first_seen: float | None = None
    start_seconds: float | None = None
    """From when it was first seen to the last bind, in this term; None if it came to its end before the term looked."""

    # -- pods

    def put_pod(self, pod: PodFacts) -> Seat | None:
        """Take in a pod's newest state. Returns the seat that it held and no longer needs, if any."""
        before = self.pods.get(pod.uid)
        if before is not None:
            self.priorities[before.priority] -= 1
        self.pods[pod.uid] = pod
        self.priorities[pod.priority] += 1
        may_run = not (pod.phase.ended or pod.deleting or pod.gated)
        on_its_way = self.on_its_way(pod.uid)
        _put(self.invalid, pod.uid, bool(pod.problem) and not pod.node and may_run and not on_its_way)
        _put(self.succeeded, pod.uid, pod.phase is PodPhase.SUCCEEDED)
        _put(self.marked, pod.uid, pod.timed_out and not (pod.node or pod.phase.ended or pod.deleting))
        if pod.timed_out or pod.node or not may_run:
            self.timing_out.discard(pod.uid)
        if not pod.timed_out:
            self.unmarking.discard(pod.uid)
        held_back = bool(pod.problem) or pod.timed_out or pod.uid in self.timing_out
        if pod.node or not may_run or (held_back and not on_its_way):
            self.waiting.pop(pod.uid, None)
            self.lost.discard(pod.uid)
            seat = self._leave_seat(pod.uid)
            stays = pod.seated and not pod.deleting
            if not stays:
                self._has_left(pod.uid)
            _put(self.bound, pod.uid, stays and pod.uid not in self.leaving)
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
        self._has_left(uid)
        for uids in (self.lost, self.succeeded, self.invalid, self.timing_out, self.marked, self.unmarking):
            uids.discard(uid)
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
        held = self._pop_held(uid)
        return held.seat if held is not None else self.acked.pop(uid, None)

    def _pop_held(self, uid: str) -> HeldSeat | None:
        held = self.seats.pop(uid, None)
        if held is not None and not self.seats:
            self.waiting_since = None  # the clock of a waiting gang runs from the first seat that it holds
        return held

    def lose_seat(self, uid: str) -> Seat:
        """A member that still wants to run loses its seat and is to be placed again."""
        held = self._pop_held(uid)
        assert held is not None
        self.waiting[uid] = self.pods[uid]
        self.lost.add(uid)
        return held.seat

    def give_seat_back(self, uid: str) -> None:
        """A member's seat is not permitted after all: it stands where it stood before."""
        repairs = self.seats[uid].repairs
        self.lose_seat(uid)
        if not repairs:
            self.lost.discard(uid)

    def let_go(self, uids: Iterable[str]) -> None:
        """Bound members are to be evicted, as soon as that is durable."""
        for uid in uids:
            self.bound.discard(uid)
            self.leaving[uid] = LeavingPod(self.name_of(uid))

    def keep(self, uids: Iterable[str]) -> None:
        """Members are not evicted after all."""
        for uid in list(uids):
            self._has_left(uid)
            self.bound.add(uid)

    def _has_left(self, uid: str) -> None:
        if self.leaving.pop(uid, None) is not None and not self.leaving:
            self.leaves_whole, self.eviction_begun, self.evicted_for = False, False, ""

    def name_of(self, uid: str) -> PodName:
        """A member's name."""
        pod = self.pods[uid]
        return PodName(uid, pod.namespace, pod.name)

    # -- what follows

    @property
    def plain(self) -> bool:
        """A single pod without marks."""
        return self.facts is not None and self.facts.dialect == PLAIN

    @property
    def on_the_move(self) -> bool:
        """Some of its members are not seen where they are to be, or are to be evicted: nobody asks it for room."""
        return bool(self.leaving or self.seats or self.acked)

    @property
    def started_by_others(self) -> bool:
        """As many members as must start together run without a permit: somebody else bound them."""
        facts = self.facts
        if self.permitted or self.group.busy or self.leaves_whole or facts is None or facts.blocked:
            return False
        return len(self.bound) >= max(1, self.needed)

    @property
    def run_is_over(self) -> bool:
        """It was permitted, nothing is left of that, and it is one that starts anew then."""
        left = self.members or self.leaving or self.succeeded or self.marked or self.timing_out
        return self.permitted and self.facts is not None and self.facts.starts_anew and not left

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
    def needed(self) -> int:
        """How many members must run at the same time. Where those count that succeeded, and those that are left cannot
        reach the minimum alone, they need not.
        """
        facts = self.facts
        if facts is None:
            return 1
        if not facts.counts_succeeded or not self.succeeded or self.counted >= facts.minimum:
            return facts.minimum
        return max(1, facts.minimum - len(self.succeeded))

    @property
    def minimum(self) -> int:
        """How many waiting members a try must place."""
        if self.facts is None or self.single:
            return 1
        return max(1, self.lacking)

    @property
    def lacking(self) -> int:
        """How many more members must have a seat before it may start; none if 0 or less."""
        return self.needed - (self.counted - len(self.waiting))

    @property
    def tries(self) -> int:
        """How often it was tried."""
        return self.earlier_tries + self.attempts

    @property
    def all_there(self) -> bool:
        """It is declared, and all that must start together is there."""
        facts = self.facts
        return facts is not None and not facts.blocked and self.counted >= max(1, self.needed)

    @property
    def timed_out(self) -> bool:
        """It waited too long, and so many pods bear the mark of that, or are about to, that it cannot be tried."""
        if self.permitted or self.facts is None or not (self.marked or self.timing_out):
            return False
        return self.counted < max(1, self.needed)

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
    def owed(self) -> list[Seat]:
        """What the permit promised and is not known to be kept: seats, and lost ones, which have no node."""
        lost = (self.pods[uid] for uid in sorted(self.lost))
        return [*self.outstanding, *(Seat(pod.uid, pod.namespace, pod.name, pod.class_id, "") for pod in lost)]

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
        return Phase.TIMED_OUT if self.timed_out else self.group.phase


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
    alone: bool = False
    """Placement refused a question in which it was: until it has an answer it is asked for alone."""
    refusals: int = 0
    """Answers in a row that could not be used."""
    explanation: Explanation | None = None
    said: Explanation | None = None
    """The explanation in placement's words."""
    yields_to: "Group | None" = None
    """It gave its reservations up for this group, and is not tried before that has started or timed out."""
    infeasible: Shape | None = None
    """What it asked for when it was proved to have no place; None: it was not, or asks something else by now."""
    next_plan: float = 0.0
    """Nobody is evicted for it before: the last plan for that could not be written."""
    no_way: str = ""
    """Why nobody could make room for it; empty: not known."""
    trouble: str = ""
    """What went wrong at the last try besides lack of room; empty: nothing."""

    @property
    def key(self) -> QueueKey:
        """Place in the queue: what is half started first (I6), then priority, age, name."""
        first = min(self.gangs, key=_age)
        repairing = any(gang.lost for gang in self.gangs)
        return (0 if repairing else 1, -self.priority, *_age(first))

    @property
    def priority(self) -> int:
        """The highest of its gangs'."""
        return max(gang.priority for gang in self.gangs)

    @property
    def busy(self) -> bool:
        """Something about it is under way; it is not regrouped meanwhile."""
        return self.solving is not None or self.persisting is not None

    @property
    def accumulates(self) -> bool:
        """Its gangs hold what they get until all have their minimum. A group is as strict as its strictest gang."""
        return all(not gang.permitted and gang.facts is not None and not gang.facts.starts_whole for gang in self.gangs)

    @property
    def holds(self) -> bool:
        """Gangs of it have reservations without a permit."""
        return any(gang.seats and not gang.permitted for gang in self.gangs)

    @property
    def complete(self) -> bool:
        """It accumulates, and every gang has its minimum."""
        return self.accumulates and all(gang.lacking <= 0 for gang in self.gangs)

    @property
    def to_seat(self) -> list[Gang]:
        """Gangs with members to place. Of those that accumulate, what goes beyond the minimum comes after the start."""
        accumulates = self.accumulates
        return [gang for gang in self.gangs if gang.waiting and not (accumulates and gang.lacking <= 0)]

    @property
    def wants_seats(self) -> bool:
        """There are members to place, and nothing under way for them."""
        return not self.busy and self.gathering is None and bool(self.to_seat)

    @property
    def phase(self) -> Phase:
        """Phase of its gangs while they have no permit."""
        if self.persisting is not None:
            return Phase.PERMITTED
        if self.holds:
            return Phase.WAITING
        if self.solving is not None:
            return Phase.SOLVING
        return Phase.QUEUED if self.gathering is None or self.yields_to is not None else Phase.GATHERING


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


def _put(uids: set[str], uid: str, belongs: bool) -> None:
    if belongs:
        uids.add(uid)
    else:
        uids.discard(uid)


def _age(gang: Gang) -> tuple[int, str, str]:
    facts = gang.facts
    return (facts.created_seconds, facts.namespace, facts.name) if facts is not None else (0, "", gang.id)
