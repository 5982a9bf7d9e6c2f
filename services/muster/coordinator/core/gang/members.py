"""The pods of a gang, each in exactly one state on its way to a node or off it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from muster.coordinator.core.events import PodName, Seat
from muster.coordinator.core.gang.state import ActionState, Eviction, HeldSeat, Hold, Uids, put
from muster.gangs.facts import PodFacts, PodPhase


@dataclass(slots=True, eq=False, kw_only=True)
class Members:
    """Pods by state.

    A member that may run is in exactly one of `pending` (needs a seat), `seats` (has one and is not known to be bound),
    `acknowledged` (bound according to the binding service, not observed yet), `bound` (observed on a node) and
    `eviction.pods` (on a node, to be evicted).
    """

    pods: dict[str, PodFacts] = field(default_factory=dict)
    pending: dict[str, PodFacts] = field(default_factory=dict)
    seats: dict[str, HeldSeat] = field(default_factory=dict)
    acknowledged: dict[str, Seat] = field(default_factory=dict)
    bound: Uids = field(default_factory=dict)
    lost: Uids = field(default_factory=dict)
    """Permitted pods that lost their seat and need another: they keep the gang Repairing (I6)."""
    succeeded: Uids = field(default_factory=dict)
    invalid: Uids = field(default_factory=dict)
    """Pods that would be pending if their own specification had no problem."""
    priorities: dict[int, int] = field(default_factory=dict)
    """Number of pods by priority."""
    live_priorities: dict[int, int] = field(default_factory=dict)
    """Number of pods by priority that have not ended and are not being deleted."""
    eviction: Eviction = field(default_factory=Eviction)
    hold: Hold = field(default_factory=Hold)

    # -- observed changes

    def put_pod(self, pod: PodFacts) -> Seat | None:
        """Take in a pod's newest state. Returns the seat that it held and no longer needs, if any."""
        before = self.pods.get(pod.uid)
        if before is None or before.priority != pod.priority or _lives(before) != _lives(pod):
            if before is not None:
                self._count_priority(before, -1)
            self._count_priority(pod, 1)
        self.pods[pod.uid] = pod
        may_run = not (pod.phase.ended or pod.deleting or pod.gated)
        bind_sent = self.bind_sent(pod.uid)
        if pod.problem or self.invalid:
            put(self.invalid, pod.uid, bool(pod.problem) and not pod.node and may_run and not bind_sent)
        put(self.succeeded, pod.uid, pod.phase is PodPhase.SUCCEEDED)
        self.hold.observe(pod, may_run=may_run)
        held_back = bool(pod.problem) or pod.timed_out or pod.uid in self.hold.marking
        if pod.node or not may_run or (held_back and not bind_sent):
            self.pending.pop(pod.uid, None)
            self.lost.pop(pod.uid, None)
            seat = self._leave_seat(pod.uid)
            stays = pod.seated and not pod.deleting
            if not stays:
                self.eviction.remove(pod.uid)
            put(self.bound, pod.uid, stays and pod.uid not in self.eviction.pods)
            return seat
        if before is not None and before.node:
            self._show_unbound(before)
        if pod.uid not in self.seats and pod.uid not in self.acknowledged:
            self.pending[pod.uid] = pod
        return None

    def _show_unbound(self, before: PodFacts) -> None:
        """A pod that was observed on a node is shown without one: the API server was restored from a backup, or what is
        shown is old. A bound one keeps its place for now, as if only the binding service had reported it.
        """
        self.eviction.remove(before.uid)
        if before.uid in self.bound:
            del self.bound[before.uid]
            self.acknowledged[before.uid] = Seat(
                before.uid, before.namespace, before.name, before.class_id, before.node, before.label_set
            )

    def drop_pod(self, uid: str) -> Seat | None:
        """Forget a pod. Returns the seat that it held, if any."""
        self._count_priority(self.pods.pop(uid), -1)
        self.pending.pop(uid, None)
        self.bound.pop(uid, None)
        self.eviction.remove(uid)
        self.hold.forget_pod(uid)
        for uids in (self.lost, self.succeeded, self.invalid):
            uids.pop(uid, None)
        return self._leave_seat(uid)

    def _count_priority(self, pod: PodFacts, change: int) -> None:
        for priorities in (self.priorities, self.live_priorities) if _lives(pod) else (self.priorities,):
            priorities[pod.priority] = priorities.get(pod.priority, 0) + change
            if not priorities[pod.priority]:
                del priorities[pod.priority]

    def bind_sent(self, uid: str) -> bool:
        """The binding service was told: the pod may be bound at any moment under this gang's permit, whatever its
        marks say now.
        """
        held = self.seats.get(uid)
        return uid in self.acknowledged or (held is not None and held.state is not ActionState.DECIDED)

    # -- seats

    def take_seat(self, seat: Seat, state: ActionState = ActionState.DECIDED) -> None:
        """A pending member gets a seat."""
        del self.pending[seat.uid]
        self.seats[seat.uid] = HeldSeat(seat, seat.uid in self.lost, state=state)
        self.lost.pop(seat.uid, None)

    def resize_seat(self, pod: PodFacts) -> Seat | None:
        """The pod's class or labels changed: returns its seat with the new ones, None if it has none."""
        if (held := self.seats.get(pod.uid)) is not None:
            held.seat = replace(held.seat, class_id=pod.class_id, label_set=pod.label_set)
            return held.seat
        if (seat := self.acknowledged.get(pod.uid)) is not None:
            seat = self.acknowledged[pod.uid] = replace(seat, class_id=pod.class_id, label_set=pod.label_set)
        return seat

    def acknowledge(self, uid: str, node: str) -> Seat:
        """The binding service reports that the pod is bound to this node."""
        seat = self.seats.pop(uid).seat
        if seat.node != node:
            seat = replace(seat, node=node)
        self.acknowledged[uid] = seat
        return seat

    def lose_seat(self, uid: str) -> Seat:
        """A member that still wants to run loses its seat and is to be placed again."""
        seat = self._leave_seat(uid)
        assert seat is not None
        self.pending[uid] = self.pods[uid]
        self.lost[uid] = None
        return seat

    def return_seat(self, uid: str) -> None:
        """A member's seat is not permitted after all: the member is in the state in which it was before."""
        repairs = self.seats[uid].repairs
        self.lose_seat(uid)
        if not repairs:
            self.lost.pop(uid, None)

    def lose_recorded_seat(self, uid: str) -> None:
        """A pending member's seat that an earlier leader recorded cannot be taken up again."""
        self.lost[uid] = None

    def drop_seats(self) -> None:
        """The gang is gone."""
        self.seats.clear()
        self.acknowledged.clear()
        self.lost.clear()

    def forget_lost(self) -> None:
        """The gang starts anew as a whole: nothing of it is repaired."""
        self.lost.clear()

    def _leave_seat(self, uid: str) -> Seat | None:
        held = self._pop_held(uid)
        return held.seat if held is not None else self.acknowledged.pop(uid, None)

    def _pop_held(self, uid: str) -> HeldSeat | None:
        held = self.seats.pop(uid, None)
        if held is not None and not self.seats:
            self.hold.end()  # the waiting time counts from the first seat that is held
        return held

    # -- eviction

    def begin_eviction(self, uids: Iterable[str], preemptor: str, *, whole: bool, revoked: bool = False) -> None:
        """Bound members are to be evicted as soon as that is durable."""
        uids = list(uids)
        for uid in uids:
            self.bound.pop(uid, None)
        self.eviction.begin((self.pod_name(uid) for uid in uids), preemptor, whole=whole, revoked=revoked)

    def cancel_eviction(self, uids: Iterable[str]) -> None:
        """Members are not evicted after all."""
        for uid in list(uids):
            self.eviction.remove(uid)
            self.bound[uid] = None

    # -- timeouts

    def time_out(self, declaration: str, *, uids: Iterable[str] | None = None) -> None:
        """Pods that are not running are to be marked as timed out; `uids`: of these, those that are pending."""
        if uids is None:
            marking = [
                pod.uid
                for pod in self.pods.values()
                if not (pod.node or pod.phase.ended or pod.deleting or pod.timed_out)
            ]
        else:
            marking = [uid for uid in uids if uid in self.pending]
        self.hold.time_out(declaration, marking)
        for uid in marking:
            self.pending.pop(uid, None)

    def cancel_timeout(self) -> Uids:
        """Pods that were to be marked are members again. Returns them."""
        uids = self.hold.cancel_marking()
        for uid in uids:
            if (pod := self.pods.get(uid)) is not None:
                self.put_pod(pod)
        return uids

    # -- derived

    def pod_name(self, uid: str) -> PodName:
        pod = self.pods[uid]
        return PodName(uid, pod.namespace, pod.name)

    @property
    def in_transition(self) -> bool:
        """Binds or evictions of members are decided and not observed: such a gang is no potential victim."""
        return bool(self.eviction.pods or self.seats or self.acknowledged)

    def has_no_place(self, uid: str) -> bool:
        """The pod has neither a node nor a seat."""
        return not (self.pods[uid].node or uid in self.seats or uid in self.acknowledged)

    @property
    def unbound_seats(self) -> list[Seat]:
        """Seats not known to be bound."""
        return [held.seat for held in self.seats.values()]

    @property
    def unsent_seats(self) -> list[Seat]:
        """Seats whose bind was not sent."""
        return [held.seat for held in self.seats.values() if held.state is ActionState.DECIDED]

    @property
    def unfulfilled_seats(self) -> list[Seat]:
        """Seats that the permit promised and that are not known to be bound; lost seats have no node."""
        lost = (self.pods[uid] for uid in sorted(self.lost))
        return [
            *self.unbound_seats,
            *(Seat(pod.uid, pod.namespace, pod.name, pod.class_id, "", pod.label_set) for pod in lost),
        ]


def _lives(pod: PodFacts) -> bool:
    return not (pod.phase.ended or pod.deleting)
