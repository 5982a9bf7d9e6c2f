"""A namespace's quota at one moment: what is taken of each ResourceQuota, and what a decision changes of that. Pure.

Of a quota a PodGroup holds what was reserved for it and has not been returned, or what its pods use, whichever is more;
all other pods hold what they use. The sum may not exceed the quota. So pods of a group use what is reserved for them,
and nobody else does.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import PodTraits, PodUsage
from muster.lifecycle.quota.census import Bound, Census, CountedPod, Group
from muster.lifecycle.quota.ledger import (
    MOST_PASSING,
    MOST_RESERVATIONS,
    MOST_RETURNED,
    Amounts,
    Ledger,
    Passing,
    Reservation,
    mark_of,
)

PASSING_SECONDS: Final = 90.0
"""A pod that was let in and is not seen for so long never came to be: requests last no longer than a minute."""
IDLE_SECONDS: Final = 60.0
"""A group whose pods have ended, and that has had no live one for so long, gives back what it has left."""
_MOST_UIDS: Final = 8

_OTHERS: Final = ""
"""In place of a group's id: pods that are in none, or in one that asks for nothing in total."""


class Shortage(Struct, frozen=True):
    """A quota that has no room, and of which resources. `reserved`: what groups hold beyond what their pods use."""

    bound: str
    requested: Nanos
    used: Nanos
    limited: Nanos
    reserved: tuple[tuple[str, Nanos], ...] = ()

    @property
    def hopeless(self) -> bool:
        """It would not fit an empty namespace either."""
        return any(self.requested[name] > self.limited[name] for name in self.requested)


class BooksFull(Exception):
    """No more can be noted; the message says of what, and what to do."""


class Books:
    """Decisions one after the other; `ledger` is what they leave. `now`: in seconds since 1970."""

    def __init__(self, census: Census, ledger: Ledger, now: float) -> None:
        self._census, self._before, self._now = census, ledger, now
        self._reservations = dict(ledger.reservations)
        self._passing = dict(ledger.passing)
        self._seen = ledger.seen
        self._used: dict[str, defaultdict[str, Nanos]] = {name: defaultdict(dict) for name in census.bounds}
        """By quota and group."""
        self._settle()
        self._count()

    @property
    def ledger(self) -> Ledger:
        """As it is to be kept from now on; the same as before if nothing is different."""
        after = Ledger(self._reservations, self._passing, self._seen)
        return self._before if after == self._before else after

    def reservation(self, group_id: str) -> Reservation | None:
        """What is kept for a group."""
        return self._reservations.get(group_id)

    def next_look(self) -> float | None:
        """After how many seconds time alone changes something."""
        due = [each.since + PASSING_SECONDS for each in self._passing.values()]
        idle = (each for each in self._reservations.values() if each.idle_since and not each.finished)
        due += [each.idle_since + IDLE_SECONDS for each in idle]
        return max(0.0, min(due) - self._now) if due else None

    # -- decisions

    def admit(self, uid: str, name: str, usage: PodUsage, group: Group | None, *, note: bool = True) -> Shortage | None:
        """Let a pod in, or say what it lacks. A group that has nothing reserved must fit as a whole with it.

        With `note` it counts from now on. Raises BooksFull.
        """
        group_id, reservation = _OTHERS, None
        if group is not None and group.total:
            group_id, reservation = group.id, self._reservations.get(group.id)
            if reservation is None or reservation.finished or reservation.uid != group.uid:
                reservation = group.reservation
        shortage = self._shortage(group_id, reservation, self._beyond(name, usage, group_id)) or self._refused(usage)
        if shortage is not None:
            if note and reservation is not None and reservation != self._reservations.get(group_id):
                self._reservations.pop(group_id, None)  # it is not finished any more, but waits
            return shortage
        if note:
            if reservation is not None:
                self._keep(group_id, reservation)
            self._note(uid, name, usage, group_id)
        return None

    def reserve(self, group: Group) -> Shortage | None:
        """Keep a group's total for it, unless that is so already or it has ended; or say what it lacks.

        Raises BooksFull.
        """
        present = self._reservations.get(group.id)
        if present is not None and present.uid == group.uid:
            if present.finished or present.total == group.total:
                return None
            wanted = replace(present, total=group.total)
        else:
            wanted = group.reservation
        shortage = self._shortage(group.id, wanted, None)
        if shortage is None:
            self._keep(group.id, wanted)
        return shortage

    # -- what is taken

    def taken(self, bound: Bound) -> Nanos:
        """What is not free of a quota, by resource."""
        sums = dict.fromkeys(bound.hard, 0)
        for group_id in {*self._used[bound.name], *self._reservations}:
            for name, nanos in self._held(bound, group_id, self._reservations.get(group_id)).items():
                sums[name] += nanos
        return sums

    def _held(self, bound: Bound, group_id: str, reservation: Reservation | None, more: Nanos | None = None) -> Nanos:
        used = self._used[bound.name].get(group_id, {})
        left: Mapping[str, int] = {}
        if reservation is not None and PodTraits(reservation.priority_class).meets(bound.requirements):
            left = reservation.left
        more = more or {}
        return {name: max(left.get(name, 0), used.get(name, 0) + more.get(name, 0)) for name in bound.hard}

    def _shortage(self, group_id: str, reservation: Reservation | None, usage: PodUsage | None) -> Shortage | None:
        """What a group lacks if it gets this reservation and one more pod."""
        for bound in self._census.bounds.values():
            more: Nanos = {}
            if usage is not None and usage.traits.meets(bound.requirements):
                more = dict(usage.amounts)
            before = self._held(bound, group_id, self._reservations.get(group_id))
            after = self._held(bound, group_id, reservation, more)
            asked = {name: after[name] - before[name] for name in bound.hard if after[name] > before[name]}
            if not asked:
                continue
            taken = self.taken(bound)
            lacking = [name for name, nanos in asked.items() if taken[name] + nanos > bound.hard[name]]
            if lacking:
                requested, used, limited = ({name: of[name] for name in lacking} for of in (asked, taken, bound.hard))
                return Shortage(bound.name, requested, used, limited, self._unused(bound, lacking, group_id))
        return None

    def _refused(self, usage: PodUsage) -> Shortage | None:
        """The API server would refuse the pod after us: it counts what has ended later than we do. It is not let in
        then, or it would count until it is sure that it never comes.
        """
        for bound in self._census.bounds.values():
            if usage.traits.meets(bound.requirements):
                asked = {name: nanos for name, nanos in usage.amounts if nanos and name in bound.told}
                lacking = [name for name, nanos in asked.items() if bound.told[name] + nanos > bound.hard.get(name, 0)]
                if lacking:
                    requested, used = ({name: of[name] for name in lacking} for of in (asked, bound.told))
                    return Shortage(bound.name, requested, used, {name: bound.hard.get(name, 0) for name in lacking})
        return None

    def _unused(self, bound: Bound, names: Iterable[str], but: str) -> tuple[tuple[str, Nanos], ...]:
        """What is reserved and not used, of these resources, by the ids of the groups that have it."""
        found = []
        for group_id, reservation in sorted(self._reservations.items()):
            used = self._used[bound.name].get(group_id, {})
            held = self._held(bound, group_id, reservation)
            spare = {name: held[name] - used.get(name, 0) for name in names if held[name] > used.get(name, 0)}
            if spare and group_id != but:
                found.append((group_id, spare))
        return tuple(found)

    def _count(self) -> None:
        for (group_id, traits), sums in self._census.live.items():
            self._use(self._holder(group_id), traits, sums)
        for name, each in self._passing.items():
            group_id = self._holder(each.group)
            beyond = _less(each.usage, self._standing(name, each.usage.traits, group_id))
            self._use(group_id, beyond.traits, dict(beyond.amounts))

    def _use(self, group_id: str, traits: PodTraits, amounts: Nanos) -> None:
        for bound in self._census.bounds.values():
            if traits.meets(bound.requirements):
                sums = self._used[bound.name][group_id]
                for name in bound.hard:
                    if amounts.get(name):
                        sums[name] = sums.get(name, 0) + amounts[name]

    def _holder(self, group_id: str) -> str:
        group = self._census.groups.get(group_id)
        known = group_id in self._reservations or (group is not None and group.total)
        return group_id if known else _OTHERS

    def _keep(self, group_id: str, reservation: Reservation) -> None:
        if group_id not in self._reservations and len(self._reservations) >= MOST_RESERVATIONS:
            raise BooksFull(
                f"quota is reserved for {MOST_RESERVATIONS} PodGroups of this namespace already: delete some that ended"
            )
        self._reservations[group_id] = reservation

    def _note(self, uid: str, name: str, usage: PodUsage, group_id: str) -> None:
        before = self._passing.get(name)
        if before is None:
            if len(self._passing) >= MOST_PASSING:
                raise BooksFull(f"{MOST_PASSING} pods were let in and are not seen yet: try again in a second")
            self._passing[name] = Passing((uid,), usage, group_id, self._now)
            self._use(group_id, usage.traits, dict(usage.amounts))
            return
        beyond = self._beyond(name, usage, group_id)
        covering = replace(usage, amounts=_largest(before.usage.amounts, usage.amounts))
        self._passing[name] = Passing((*before.uids, uid)[-_MOST_UIDS:], covering, group_id, self._now)
        self._use(group_id, beyond.traits, dict(beyond.amounts))

    def _beyond(self, name: str, usage: PodUsage, group_id: str) -> PodUsage:
        """What a pod uses beyond others of its name, that are there or were let in: only one of them can be."""
        before = self._passing.get(name)
        counted = self._standing(name, usage.traits, group_id)
        if before is not None and (self._holder(before.group), before.usage.traits) == (group_id, usage.traits):
            counted = _largest(counted, before.usage.amounts)
        return _less(usage, counted)

    def _standing(self, name: str, traits: PodTraits, group_id: str) -> Amounts:
        """What the pod uses that has the name now, if it counts for the same."""
        pod = self._census.pods.get(self._census.named.get(name, ""))
        same = pod is not None and not pod.ended and (self._holder(pod.group), pod.usage.traits) == (group_id, traits)
        return pod.usage.amounts if pod is not None and same else ()

    # -- what has happened meanwhile

    def _settle(self) -> None:
        for name, each in list(self._passing.items()):
            seen = [at for uid in each.uids if (at := self._census.seen_at(uid)) is not None]
            if seen:
                self._seen = max(self._seen, *seen)
            if seen or self._now - each.since >= PASSING_SECONDS or each.since - self._now > PASSING_SECONDS:
                del self._passing[name]
        remembered = sum(len(each.counted) for each in self._reservations.values())
        passing = {each.group for each in self._passing.values()}
        for group_id, reservation in list(self._reservations.items()):
            ended = self._census.ended.get(group_id, {})
            settled = self._returned(reservation, ended.values(), MOST_RETURNED - remembered)
            live = bool(self._census.live_pods.get(group_id)) or group_id in passing
            self._reservations[group_id] = self._aged(settled, live=live, some_ended=bool(ended or settled.returned))

    def _returned(self, reservation: Reservation, ended: Iterable[CountedPod], room: int) -> Reservation:
        """Pods that succeeded give back what they used, each once."""
        marks = {mark_of(pod.uid): pod for pod in ended if pod.ended == "Succeeded"}
        kept = tuple(mark for mark in reservation.counted if mark in marks)
        new = [mark for mark in marks if mark not in set(kept)][: max(0, room)]
        if not new and kept == reservation.counted:
            return reservation
        sums = dict(reservation.returned)
        for mark in new:
            self._seen = max(self._seen, marks[mark].revision)
            for name, nanos in marks[mark].usage.amounts:
                sums[name] = sums.get(name, 0) + nanos
        return replace(reservation, returned=tuple(sorted(sums.items())), counted=(*kept, *new))

    def _aged(self, reservation: Reservation, *, live: bool, some_ended: bool) -> Reservation:
        if reservation.finished:
            return reservation
        if live or not some_ended:
            return replace(reservation, idle_since=0.0) if reservation.idle_since else reservation
        since = reservation.idle_since or self._now
        return replace(reservation, idle_since=since, finished=self._now - since >= IDLE_SECONDS)

    def forget_groups(self, through: Mapping[str, int]) -> None:
        """Give up what is kept for groups that are not there any more. `through`: up to which revision the groups of a
        dialect have been seen, so that one that is not seen yet is not taken for one that is gone.
        """
        for group_id, reservation in list(self._reservations.items()):
            group = self._census.groups.get(group_id)
            seen = through.get(group_id.partition("/")[0], 0) >= reservation.revision
            if seen and (group is None or group.uid != reservation.uid or not group.total):
                del self._reservations[group_id]


def _less(usage: PodUsage, counted: Amounts) -> PodUsage:
    """What is left of it without what is counted already."""
    if not counted:
        return usage
    already = dict(counted)
    return replace(usage, amounts=tuple((name, max(0, n - already.get(name, 0))) for name, n in usage.amounts))


def _largest(one: Amounts, other: Amounts) -> Amounts:
    first, second = dict(one), dict(other)
    return tuple(sorted((name, max(first.get(name, 0), second.get(name, 0))) for name in {*first, *second}))
