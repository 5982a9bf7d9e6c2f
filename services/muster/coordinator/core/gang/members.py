"""The pods of a gang as the coordinator knows them, each where it stands on its way to a node."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec.structs import replace

from muster.coordinator.core.events import PodName, Seat
from muster.gangs.facts import PodFacts, PodPhase


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
class LeavingPod:
    """A pod that is to be evicted, and how far that is."""

    pod: PodName
    state: SeatState = SeatState.DECIDED
    failures: int = 0
    retry_at: float = 0.0


@dataclass(slots=True, eq=False, kw_only=True)
class Members:
    """Every member is in exactly one of: `waiting` (wants a seat), `seats` (has one that is not known to be bound),
    `acked` (binding says it is bound, cluster-state has not shown it yet), `bound` (seen on a node), `leaving` (on a
    node, and to be evicted).
    """

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
    priorities: Counter[int] = field(default_factory=Counter)

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

    @property
    def on_the_move(self) -> bool:
        """Some of its members are not seen where they are to be, or are to be evicted: nobody asks it for room."""
        return bool(self.leaving or self.seats or self.acked)

    @property
    def outstanding(self) -> list[Seat]:
        """Seats not known to be bound."""
        return [held.seat for held in self.seats.values()]

    @property
    def owed(self) -> list[Seat]:
        """What the permit promised and is not known to be kept: seats, and lost ones, which have no node."""
        lost = (self.pods[uid] for uid in sorted(self.lost))
        return [*self.outstanding, *(Seat(pod.uid, pod.namespace, pod.name, pod.class_id, "") for pod in lost)]


def _put(uids: set[str], uid: str, belongs: bool) -> None:
    if belongs:
        uids.add(uid)
    else:
        uids.discard(uid)
