"""State of gangs and their pods, split into values that have one owner each.

Only the methods of a value assign its fields, and only the owner calls those methods. Which package owns which value
stands in tests/unit/structure/test_state_owners.py, which checks both. The state of groups is in `gang/gang`.

A gang has eleven such values. None refers to a gang or a group, so they cannot be part of a reference cycle and are
exempt from cycle detection, which would hold the event loop to scan them.
"""

import math
from collections.abc import Iterable
from enum import Enum, auto

from msgspec import Struct, field

from muster.coordinator.core.events import PodName, Record, RecordState, Seat
from muster.gangs.facts import PodFacts

Uids = dict[str, None]
"""A set of pod uids, in the order of insertion. A gang has nine, most of them empty: an empty dict takes a third of the
memory of an empty set, and neither it nor one of strings is scanned for reference cycles."""

# ------------------------------------------------------------------------------------------------------------- of pods


class ActionState(Enum):
    """State of a bind or an eviction."""

    DECIDED = auto()
    """Not known to be durable."""
    SENT = auto()
    """Sent to the binding service."""
    RETRY = auto()
    """Failed; sent again at `retry_at`."""


class PodAction(Struct, eq=False, kw_only=True, gc=False):
    """Progress of one bind or one eviction."""

    state: ActionState = ActionState.DECIDED
    failures: int = 0
    """Failures in a row."""
    retry_at: float = math.inf

    def send(self) -> None:
        self.state = ActionState.SENT

    def fail(self) -> None:
        self.failures += 1

    def retry(self, at: float) -> None:
        self.state, self.retry_at = ActionState.RETRY, at


class HeldSeat(PodAction, eq=False, gc=False):
    """A reservation on its way to a bound pod."""

    seat: Seat
    repairs: bool = False
    """The member had a permitted seat before, and lost it."""


class LeavingPod(PodAction, eq=False, gc=False):
    """A pod that is to be evicted."""

    pod: PodName


# ------------------------------------------------------------------------------------------------------------ of gangs


class ScheduleCycle(Struct, gc=False):
    """Koordinator's schedule cycle: which members were tried when.

    `number` starts at 1. A failure makes the cycle invalid; it ends, and the next begins valid, when all of
    total-number members have been tried in it. A gang may have fewer members than its total-number; waiting for an
    attempt with members that do not exist would be a false wait (I7), so an attempt after an invalid cycle begins the
    next one in any case.
    """

    number: int = 1
    valid: bool = True
    tried: Uids = field(default_factory=dict)

    def begin_attempt(self, uids: Iterable[str]) -> None:
        if not self.valid:
            self._next()
        self.tried.update(dict.fromkeys(uids))

    def fail(self, total: int) -> None:
        self.valid = False
        if len(self.tried) >= total:
            self._next()

    def _next(self) -> None:
        self.number += 1
        self.valid = True
        self.tried.clear()


class Attempts(Struct, gc=False):
    """Attempts to place a gang."""

    in_term: int = 0
    earlier: int = 0
    """Attempts in earlier terms, as far as they were recorded."""
    cycle: ScheduleCycle = field(default_factory=ScheduleCycle)
    solver_seconds: float = 0.0
    """Time for which solve requests with its group were under way in this term."""
    rejections: dict[str, int] = field(default_factory=dict)
    """Placement answers that were rejected in this term, by reason."""

    @property
    def total(self) -> int:
        return self.earlier + self.in_term

    def begin(self, uids: Iterable[str]) -> None:
        self.in_term += 1
        self.cycle.begin_attempt(uids)

    def fail(self, total: int) -> None:
        """The attempt found no place; `total` is the gang's total number of members."""
        self.cycle.fail(total)

    def charge(self, seconds: float) -> None:
        self.solver_seconds += max(0.0, seconds)

    def reject(self, reason: str) -> None:
        self.rejections[reason] = self.rejections.get(reason, 0) + 1

    def restore(self, record: Record) -> None:
        self.cycle.number = record.schedule_cycle
        self.earlier = record.tries

    def restart(self) -> None:
        """The gang returns to the queue as a whole, in its next schedule cycle."""
        self.cycle = ScheduleCycle(self.cycle.number + 1)


class PermitState(Struct, gc=False):
    """The permit of a gang, and its record in etcd."""

    granted: bool = False
    """The permit is durable (I2)."""
    fulfilled: bool = False
    """All pods of the first permit were bound once."""
    record: Record | None = None
    """The gang's record that is, or is about to be, in etcd."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Ranks by uid that are known to be durable."""
    attempts: int = 0
    """Attempts until the last permit, known to be durable."""

    def write(self, record: Record | None) -> None:
        self.record = record

    def grant(self) -> None:
        """The record is durable."""
        self.granted = True
        self.ranks, self.attempts = {}, 0
        if self.record is not None:
            self.ranks, self.attempts = dict(self.record.ranks), self.record.tries

    def restore(self, record: Record) -> None:
        self.record, self.ranks, self.attempts = record, dict(record.ranks), record.tries
        self.granted = record.state is not RecordState.UNPERMITTED
        self.fulfilled = record.state is RecordState.SATISFIED

    def fulfil(self) -> None:
        self.fulfilled = True

    def adopt(self) -> None:
        """The gang runs, whoever bound its pods."""
        self.granted = self.fulfilled = True

    def revoke(self) -> None:
        self.granted = self.fulfilled = False


class BindTrouble(Struct, gc=False):
    """Failed binds of a gang."""

    failure: str = ""
    """Message of the last failure while some of the gang's pods are not bound because of failures."""
    avoided_nodes: dict[str, None] = field(default_factory=dict)
    """Nodes on which pods could not be bound, while there is trouble."""
    given_up: dict[str, int] = field(default_factory=dict)
    """How often in a row a pod was given up on a node, by uid, while there is trouble."""
    paused: bool = False
    """The gang's pods were given up repeatedly: none is tried for a while."""

    def report(self, message: str) -> None:
        self.failure = message

    def avoid(self, node: str) -> None:
        """Try other nodes first. When the same node fails again there are no others: all are eligible again."""
        if node in self.avoided_nodes:
            self.avoided_nodes.clear()
        self.avoided_nodes[node] = None

    def give_up(self, uid: str) -> int:
        """A pod could not be bound to its node. Returns how often in a row."""
        self.given_up[uid] = self.given_up.get(uid, 0) + 1
        return self.given_up[uid]

    def forget(self, uid: str) -> None:
        """The pod is bound, or gone."""
        self.given_up.pop(uid, None)

    def restore(self, avoided_nodes: Iterable[str], given_up: Iterable[tuple[str, int]], *, paused: bool) -> None:
        self.avoided_nodes, self.given_up = dict.fromkeys(avoided_nodes), dict(given_up)
        self.paused = paused

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def clear(self) -> None:
        self.failure = ""
        self.avoided_nodes.clear()
        self.given_up.clear()


class Hold(Struct, gc=False):
    """The wait of a NonStrict gang with reservations, and its pods that waited too long."""

    since: float | None = None
    """Monotonic time of the first of the reservations that the gang holds without a permit."""
    since_unix_millis: int = 0
    timed_out_declaration: str = ""
    """The declaration at the time of the timeout; another declaration has the gang tried again."""
    marking: Uids = field(default_factory=dict)
    """Pods of a timed-out gang that have not been observed with the timeout mark yet."""
    marked: Uids = field(default_factory=dict)
    """Pods with the timeout mark: they are not tried."""
    unmarking: Uids = field(default_factory=dict)
    """Pods from which the timeout mark is being removed."""

    def begin(self, monotonic_seconds: float, unix_millis: int) -> None:
        self.since, self.since_unix_millis = monotonic_seconds, unix_millis

    def end(self) -> None:
        self.since = None

    def time_out(self, declaration: str, uids: Iterable[str]) -> None:
        self.timed_out_declaration, self.marking = declaration, dict.fromkeys(uids)

    def cancel_marking(self) -> Uids:
        """Returns the pods that need no mark any more."""
        uids, self.marking = self.marking, {}
        return uids

    def forget_timeout(self) -> None:
        self.timed_out_declaration = ""

    def unmark(self, uids: Iterable[str]) -> None:
        self.unmarking.update(dict.fromkeys(uids))

    def observe(self, pod: PodFacts, *, may_run: bool) -> None:
        """Take in the pod's mark."""
        if not (pod.timed_out or self.marked or self.marking or self.unmarking):
            return
        put(self.marked, pod.uid, pod.timed_out and not (pod.node or pod.phase.ended or pod.deleting))
        if pod.timed_out or pod.node or not may_run:
            self.marking.pop(pod.uid, None)
        if not pod.timed_out:
            self.unmarking.pop(pod.uid, None)

    def forget_pod(self, uid: str) -> None:
        for uids in (self.marking, self.marked, self.unmarking):
            uids.pop(uid, None)


class Eviction(Struct, gc=False):
    """Members of a gang that are to be evicted, and for which gang."""

    pods: dict[str, LeavingPod] = field(default_factory=dict)
    """Members on a node that are to be evicted, by uid."""
    begun: bool = False
    """Some of `pods` were sent to the binding service."""
    whole: bool = False
    """All pods of the gang are to be evicted; then it starts anew."""
    preemptor: str = ""
    """Id of the gang for which `pods` are evicted; empty: evicted by the gang's own repair policy."""
    revoked: bool = False
    """The pods run on capacity that is reserved for the preemptor and was lent to them."""
    preempted_by: str = ""
    """Id of the gang for which the whole gang was evicted, until it could start again."""
    refusals: int = 0
    """Plans in a row that ended since pods of the gang could not be evicted."""
    refused_until: float = 0.0
    """Monotonic time until which the gang is no potential victim after the last of them."""
    refused: bool = False
    """That time has not come."""

    def begin(self, pods: Iterable[PodName], preemptor: str, *, whole: bool, revoked: bool = False) -> None:
        for pod in pods:
            self.pods[pod.uid] = LeavingPod(pod)
        self.preemptor, self.whole, self.revoked = preemptor, whole, revoked

    def note_preempted(self) -> None:
        self.preempted_by = self.preemptor

    def forget_preempted(self) -> None:
        self.preempted_by = ""

    def restore(self, record: Record) -> None:
        self.preempted_by = record.preempted_by

    def sent(self) -> None:
        self.begun = True

    def refuse(self, refusals: int, until: float) -> None:
        """Pods of the gang cannot be evicted: the `refusals`-th time in a row."""
        self.refusals, self.refused_until, self.refused = refusals, until, True

    def end_refusal(self) -> None:
        """The gang is a potential victim again."""
        self.refused = False

    def remove(self, uid: str) -> None:
        """The pod has left its node, or stays after all."""
        if self.pods.pop(uid, None) is not None and not self.pods:
            self.whole, self.begun, self.preemptor, self.revoked = False, False, "", False


class PartGrowth(Struct, gc=False):
    """How a part of a gang grows that has its minimum: not for a while after it was shrunk, and in batches. The part is
    one subgroup, or the gang's members in none.
    """

    shrinks: int = 0
    """Times in a row that preemption took surplus pods of it."""
    not_before: float = 0.0
    """Monotonic time before which a part that was shrunk does not grow."""
    not_before_unix_millis: int = 0
    hold_off_seconds: float = 0.0
    held_off: bool = False
    """Whether the part was shrunk and that time has not come."""
    batch_until: float = math.inf
    """Monotonic time until which its pending surplus is only placed all together; infinite: it has none, or that time
    has come.
    """
    in_part: bool = False
    """The gang's pending surplus was not placed all together in time: what fits is."""
    before: tuple[int, float, int, float] = (0, 0.0, 0, 0.0)
    """Of the last time that it was to be shrunk: how often it had been before, and until when it was held off."""

    def shrink(self, shrinks: int, seconds: float, monotonic_seconds: float, unix_seconds: float) -> None:
        """Surplus pods are to be evicted: the `shrinks`-th time in a row."""
        self.before = (self.shrinks, self.not_before, self.not_before_unix_millis, self.hold_off_seconds)
        self.hold_off(shrinks, monotonic_seconds + seconds, int((unix_seconds + seconds) * 1000), seconds)

    def hold_off(self, shrinks: int, until: float, until_unix_millis: int, seconds: float) -> None:
        self.shrinks, self.not_before, self.not_before_unix_millis = shrinks, until, until_unix_millis
        self.hold_off_seconds, self.held_off = seconds, True

    def undo_shrink(self) -> None:
        """No pod was evicted."""
        self.shrinks, self.not_before, self.not_before_unix_millis, self.hold_off_seconds = self.before

    def may_grow(self) -> None:
        self.held_off = False

    def begin_batch(self, until: float) -> None:
        self.batch_until, self.in_part = until, False

    def resume_batch(self, until: float, *, in_part: bool) -> None:
        self.batch_until, self.in_part = until, in_part

    def place_in_part(self) -> None:
        self.batch_until, self.in_part = math.inf, True

    def end_batch(self) -> None:
        """The part has no pending surplus."""
        self.batch_until, self.in_part = math.inf, False

    @property
    def next_time(self) -> float:
        """Monotonic time at which a hold-off or a batch ends; infinite: none is under way."""
        return min(self.not_before, self.batch_until) if self.held_off else self.batch_until


class Growth(Struct, gc=False):
    """How a gang that has its minimum grows."""

    parts: dict[str, PartGrowth] = field(default_factory=dict)
    """By id of the gang (members in no subgroup) or subgroup, those with pending surplus or that were shrunk. An entry
    ends when neither matters any more, and with the run.
    """
    met_minimum: int = 0
    """The last minimum that the run had, in case it was raised since; 0: not known."""
    kept_loan: bool = False
    """Whether the gang kept reserved capacity that was lent to it: nothing is lent to it any more."""

    def part(self, id_: str) -> PartGrowth:
        """The part with this id, which is added if it is new."""
        part = self.parts.get(id_)
        if part is None:
            part = self.parts[id_] = PartGrowth()
        return part

    def forget(self, id_: str) -> None:
        del self.parts[id_]

    def in_part(self, id_: str) -> bool:
        """Pending surplus of this part is placed as far as it fits."""
        part = self.parts.get(id_)
        return part is not None and part.in_part

    @property
    def held_off(self) -> PartGrowth | None:
        """Of the parts that were shrunk and do not grow yet, the first that may grow again; None: there is none."""
        off = (part for part in self.parts.values() if part.held_off)
        return min(off, key=lambda part: part.not_before, default=None)

    def meet(self, minimum: int) -> None:
        """The gang has its minimum, or an earlier leader recorded that it had."""
        self.met_minimum = minimum

    def keep_loan(self) -> None:
        self.kept_loan = True


class RunTime(Struct, weakref=True):
    """Whether the run time that pods of a gang declare is believed, shared by all gangs of an owner."""

    overran: bool = False
    """A pod ran for longer than it declared, which nothing enforced."""

    def overrun(self) -> None:
        self.overran = True

    def believe(self) -> None:
        """What is declared is believed again."""
        self.overran = False


class Timing(Struct, gc=False):
    """When a gang was first seen, could start, and was bound."""

    first_seen: float | None = None
    """Monotonic time; None: not yet."""
    start_seconds: float | None = None
    """Seconds from `first_seen` to the last bind, in this term."""
    ready_unix: float = 0.0
    """Unix time at which all that must start together existed; 0: never, or not known."""
    bound_unix: float = 0.0
    """Unix time at which all of that was bound; 0: never, or not known."""

    short_since: float | None = None
    """Monotonic time at which its declared minimum resources were first seen not to be free; None: not yet."""
    waived: bool = False
    """The gang is tried although its minimum resources are not free: it has waited as long as gangs that starve."""

    def lack(self, monotonic_seconds: float) -> None:
        self.short_since = monotonic_seconds

    def waive(self) -> None:
        self.waived = True

    def restore(self, short_since: float | None, *, waived: bool) -> None:
        self.short_since, self.waived = short_since, waived

    def see(self, monotonic_seconds: float) -> None:
        self.first_seen = monotonic_seconds

    def ready(self, unix_seconds: float) -> None:
        self.ready_unix = unix_seconds

    def bound(self, unix_seconds: float) -> None:
        self.bound_unix = unix_seconds

    def start(self, monotonic_seconds: float) -> float | None:
        """Return the seconds since the gang was first seen; None: an earlier leader had bound it before."""
        if self.first_seen is not None:
            self.start_seconds = monotonic_seconds - self.first_seen
        return self.start_seconds

    def restart(self) -> None:
        self.start_seconds = self.short_since = None
        self.waived = False
        self.ready_unix = self.bound_unix = 0.0


def put(uids: Uids, uid: str, belongs: bool) -> None:
    """Add or remove."""
    if belongs:
        uids[uid] = None
    else:
        uids.pop(uid, None)
