"""Accounts for a namespace's quota at one moment: usage of each ResourceQuota, and decisions that change it. Pure.

A PodGroup uses the maximum of its unreturned reservation and the usage of its pods; all other pods use what they
request. The sum must not exceed the quota. Pods of a group therefore use its reservation, and no other pod does.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import PodTraits, PodUsage
from muster.lifecycle.quota.ledger import (
    MAX_ADMITTED,
    MAX_RESERVATIONS,
    MAX_RETURNED_PODS,
    AdmittedPod,
    Amounts,
    Ledger,
    Reservation,
    pod_digest,
)
from muster.lifecycle.quota.usage import NamespaceUsage, QuotaGroup, QuotaLimit, QuotaPod

ADMITTED_SECONDS: Final = 90.0
"""An admitted pod that is not observed for this long was never created: requests last at most a minute."""
IDLE_SECONDS: Final = 60.0
"""A group whose pods have ended and that has had no live pod for this long releases its reservation."""
_MAX_UIDS: Final = 8

_NO_GROUP: Final = ""
"""Group id of pods without a group, or of a group without a total."""


class Shortage(Struct, frozen=True):
    """A quota without enough left, and the resources concerned. `reserved`: reservations beyond the pods' usage."""

    quota: str
    requested: Nanos
    used: Nanos
    limited: Nanos
    reserved: tuple[tuple[str, Nanos], ...] = ()

    @property
    def exceeds_quota(self) -> bool:
        """Whether the request exceeds the whole quota."""
        return any(self.requested[name] > self.limited[name] for name in self.requested)


class LedgerFull(Exception):
    """The ledger has no space left; the message says for what, and what to do."""


class QuotaAccount:
    """Applies decisions one after the other; `ledger` is the result. `now` is in seconds since 1970.

    A decision costs as much however many groups have reservations, but for the message of the first shortage after a
    change: thousands of groups may be decided in a row.
    """

    def __init__(self, observed: NamespaceUsage, ledger: Ledger, now: float) -> None:
        self._observed, self._before, self._now = observed, ledger, now
        self._reservations = dict(ledger.reservations)
        self._admitted = dict(ledger.admitted)
        self._observed_revision = ledger.observed_revision
        self._limits = dict(observed.limits)
        self._used: dict[str, defaultdict[str, Nanos]] = {name: defaultdict(dict) for name in self._limits}
        """Usage by quota and group."""
        self._sums: dict[str, Nanos] = {}
        """What is used or reserved, by quota."""
        self._spare: dict[tuple[str, tuple[str, ...]], list[tuple[str, Nanos]]] = {}
        """Reserved and unused amounts by group, for a quota and some of its resources; until something changes."""
        self._update()
        self._count()
        self._sums = {limit.name: self._sum(limit) for limit in self._limits.values()}

    @property
    def ledger(self) -> Ledger:
        """The resulting ledger; the identical object if nothing changed."""
        after = Ledger(self._reservations, self._admitted, self._observed_revision)
        return self._before if after == self._before else after

    def reservation(self, group_id: str) -> Reservation | None:
        """Returns the reservation of a group."""
        return self._reservations.get(group_id)

    def next_change_seconds(self) -> float | None:
        """Returns the seconds until a timeout changes something; None: no timeout is running."""
        due = [each.since + ADMITTED_SECONDS for each in self._admitted.values()]
        idle = (each for each in self._reservations.values() if each.idle_since and not each.finished)
        due += [each.idle_since + IDLE_SECONDS for each in idle]
        return max(0.0, min(due) - self._now) if due else None

    # -- decisions

    def admit(
        self, uid: str, name: str, usage: PodUsage, group: QuotaGroup | None, *, record: bool = True
    ) -> Shortage | None:
        """Admits a pod, or returns the shortage. A group without a reservation must fit as a whole with the pod.

        With `record`, the pod is recorded in the ledger. Raises LedgerFull.
        """
        group_id, reservation = _NO_GROUP, None
        if group is not None and group.total:
            group_id, reservation = group.id, self._reservations.get(group.id)
            if reservation is None or reservation.finished or reservation.uid != group.uid:
                reservation = group.reservation
        shortage = self._shortage(group_id, reservation, self._beyond(name, usage, group_id)) or self._exceeds_reported(
            usage
        )
        if shortage is not None:
            if record and reservation is not None and reservation != self._reservations.get(group_id):
                self._set_reservation(group_id, None)  # no longer finished: it waits again
            return shortage
        if record:
            if reservation is not None:
                self._put_reservation(group_id, reservation)
            self._record(uid, name, usage, group_id)
        return None

    def reserve(self, group: QuotaGroup) -> Shortage | None:
        """Reserves a group's total unless it is reserved or released already; returns the shortage if it does not fit.

        Raises LedgerFull.
        """
        present = self._reservations.get(group.id)
        if present is not None and present.uid == group.uid:
            if present.finished or present.total == group.total:
                return None
            reservation = replace(present, total=group.total)
        else:
            reservation = group.reservation
        shortage = self._shortage(group.id, reservation, None)
        if shortage is None:
            self._put_reservation(group.id, reservation)
        return shortage

    # -- usage

    def in_use(self, limit: QuotaLimit) -> Nanos:
        """Returns the amounts of a quota that are used or reserved, by resource."""
        return dict(self._sums[limit.name])

    def _sum(self, limit: QuotaLimit) -> Nanos:
        sums = dict.fromkeys(limit.hard, 0)
        for group_id in {*self._used[limit.name], *self._reservations}:
            for name, nanos in self._held(limit, group_id, self._reservations.get(group_id)).items():
                sums[name] += nanos
        return sums

    def _held(
        self, limit: QuotaLimit, group_id: str, reservation: Reservation | None, more: Nanos | None = None
    ) -> Nanos:
        used = self._used[limit.name].get(group_id, {})
        left: Mapping[str, int] = {}
        if reservation is not None and PodTraits(reservation.priority_class).meets(limit.requirements):
            left = reservation.left
        more = more or {}
        return {name: max(left.get(name, 0), used.get(name, 0) + more.get(name, 0)) for name in limit.hard}

    def _shortage(self, group_id: str, reservation: Reservation | None, usage: PodUsage | None) -> Shortage | None:
        """Returns the shortage if a group gets this reservation and one more pod."""
        for limit in self._limits.values():
            more: Nanos = {}
            if usage is not None and usage.traits.meets(limit.requirements):
                more = dict(usage.amounts)
            before = self._held(limit, group_id, self._reservations.get(group_id))
            after = self._held(limit, group_id, reservation, more)
            requested = {name: after[name] - before[name] for name in limit.hard if after[name] > before[name]}
            if not requested:
                continue
            in_use = self.in_use(limit)
            exceeded = [name for name, nanos in requested.items() if in_use[name] + nanos > limit.hard[name]]
            if exceeded:
                requested, used, limited = (
                    {name: of[name] for name in exceeded} for of in (requested, in_use, limit.hard)
                )
                return Shortage(limit.name, requested, used, limited, self._unused(limit, exceeded, group_id))
        return None

    def _exceeds_reported(self, usage: PodUsage) -> Shortage | None:
        """Returns the shortage by the API server's own count, which learns of ended pods later than this replica.

        The API server would reject such a pod after its admission here, and the ledger would count it until
        ADMITTED_SECONDS have passed.
        """
        for limit in self._limits.values():
            if usage.traits.meets(limit.requirements):
                requested = {name: nanos for name, nanos in usage.amounts if nanos and name in limit.reported_used}
                reported, limited = limit.reported_used, {name: limit.hard.get(name, 0) for name in requested}
                exceeded = [name for name, nanos in requested.items() if reported[name] + nanos > limited[name]]
                if exceeded:
                    requested, used, hard = (
                        {name: of[name] for name in exceeded} for of in (requested, reported, limited)
                    )
                    return Shortage(limit.name, requested, used, hard)
        return None

    def _unused(self, limit: QuotaLimit, names: Iterable[str], except_group: str) -> tuple[tuple[str, Nanos], ...]:
        """Returns the reserved and unused amounts of these resources, by group id, without one group."""
        key = limit.name, tuple(names)
        found = self._spare.get(key)
        if found is None:
            found = self._spare[key] = []
            for group_id, reservation in sorted(self._reservations.items()):
                used = self._used[limit.name].get(group_id, {})
                held = self._held(limit, group_id, reservation)
                spare = {name: held[name] - used.get(name, 0) for name in key[1] if held[name] > used.get(name, 0)}
                if spare:
                    found.append((group_id, spare))
        return tuple([each for each in found if each[0] != except_group])

    def _count(self) -> None:
        for (group_id, traits), sums in self._observed.live.items():
            self._use(self._holder(group_id), traits, sums)
        for name, each in self._admitted.items():
            group_id = self._holder(each.group)
            beyond = _subtract(each.usage, self._existing(name, each.usage.traits, group_id))
            self._use(group_id, beyond.traits, dict(beyond.amounts))

    def _use(self, group_id: str, traits: PodTraits, amounts: Nanos) -> None:
        self._count_group(group_id, -1)
        for limit in self._limits.values():
            if traits.meets(limit.requirements):
                sums = self._used[limit.name][group_id]
                for name in limit.hard:
                    if amounts.get(name):
                        sums[name] = sums.get(name, 0) + amounts[name]
        self._count_group(group_id, 1)

    def _count_group(self, group_id: str, times: int) -> None:
        """Add what a group holds to the sums, or subtract it before that changes."""
        self._spare.clear()
        for name, sums in self._sums.items():
            for resource, nanos in self._held(self._limits[name], group_id, self._reservations.get(group_id)).items():
                sums[resource] += times * nanos

    def _holder(self, group_id: str) -> str:
        group = self._observed.groups.get(group_id)
        known = group_id in self._reservations or (group is not None and group.total)
        return group_id if known else _NO_GROUP

    def _put_reservation(self, group_id: str, reservation: Reservation) -> None:
        if group_id not in self._reservations and len(self._reservations) >= MAX_RESERVATIONS:
            raise LedgerFull(
                f"quota is reserved for {MAX_RESERVATIONS} PodGroups of this namespace already: delete ended ones"
            )
        self._set_reservation(group_id, reservation)

    def _set_reservation(self, group_id: str, reservation: Reservation | None) -> None:
        self._count_group(group_id, -1)
        if reservation is None:
            self._reservations.pop(group_id, None)
        else:
            self._reservations[group_id] = reservation
        self._count_group(group_id, 1)

    def _record(self, uid: str, name: str, usage: PodUsage, group_id: str) -> None:
        before = self._admitted.get(name)
        if before is None:
            if len(self._admitted) >= MAX_ADMITTED:
                raise LedgerFull(f"{MAX_ADMITTED} pods were admitted and are not observed yet: try again in a second")
            self._admitted[name] = AdmittedPod((uid,), usage, group_id, self._now)
            self._use(group_id, usage.traits, dict(usage.amounts))
            return
        beyond = self._beyond(name, usage, group_id)
        covering = replace(usage, amounts=_maximum(before.usage.amounts, usage.amounts))
        self._admitted[name] = AdmittedPod((*before.uids, uid)[-_MAX_UIDS:], covering, group_id, self._now)
        self._use(group_id, beyond.traits, dict(beyond.amounts))

    def _beyond(self, name: str, usage: PodUsage, group_id: str) -> PodUsage:
        """Returns the pod's usage beyond that of existing or admitted pods of its name: only one of them can exist."""
        before = self._admitted.get(name)
        counted = self._existing(name, usage.traits, group_id)
        if before is not None and (self._holder(before.group), before.usage.traits) == (group_id, usage.traits):
            counted = _maximum(counted, before.usage.amounts)
        return _subtract(usage, counted)

    def _existing(self, name: str, traits: PodTraits, group_id: str) -> Amounts:
        """Returns the usage of the existing pod of that name, if it counts for the same group and quotas."""
        pod = self._observed.pods.get(self._observed.named.get(name, ""))
        same = pod is not None and not pod.ended and (self._holder(pod.group), pod.usage.traits) == (group_id, traits)
        return pod.usage.amounts if pod is not None and same else ()

    # -- updates from observed pods

    def _update(self) -> None:
        for name, each in list(self._admitted.items()):
            seen = [at for uid in each.uids if (at := self._observed.observed_revision(uid)) is not None]
            if seen:
                self._observed_revision = max(self._observed_revision, *seen)
            if seen or self._now - each.since >= ADMITTED_SECONDS or each.since - self._now > ADMITTED_SECONDS:
                del self._admitted[name]
        remembered = sum(len(each.counted) for each in self._reservations.values())
        admitted = {each.group for each in self._admitted.values()}
        for group_id, reservation in list(self._reservations.items()):
            ended = self._observed.ended.get(group_id, {})
            settled = self._returned(reservation, ended.values(), MAX_RETURNED_PODS - remembered)
            live = bool(self._observed.live_pods.get(group_id)) or group_id in admitted
            self._reservations[group_id] = self._aged(settled, live=live, some_ended=bool(ended or settled.returned))

    def _returned(self, reservation: Reservation, ended: Iterable[QuotaPod], room: int) -> Reservation:
        """Returns the reservation without the usage of pods that succeeded, each subtracted once."""
        digests = {pod_digest(pod.uid): pod for pod in ended if pod.ended == "Succeeded"}
        kept = tuple(each for each in reservation.counted if each in digests)
        new = [each for each in digests if each not in set(kept)][: max(0, room)]
        if not new and kept == reservation.counted:
            return reservation
        sums = dict(reservation.returned)
        for digest in new:
            self._observed_revision = max(self._observed_revision, digests[digest].revision)
            for name, nanos in digests[digest].usage.amounts:
                sums[name] = sums.get(name, 0) + nanos
        return replace(reservation, returned=tuple(sorted(sums.items())), counted=(*kept, *new))

    def _aged(self, reservation: Reservation, *, live: bool, some_ended: bool) -> Reservation:
        if reservation.finished:
            return reservation
        if live or not some_ended:
            return replace(reservation, idle_since=0.0) if reservation.idle_since else reservation
        since = reservation.idle_since or self._now
        return replace(reservation, idle_since=since, finished=self._now - since >= IDLE_SECONDS)

    def drop_deleted_groups(self, through: Mapping[str, int]) -> None:
        """Drops reservations of groups that no longer exist.

        `through` is the revision up to which the groups of each dialect have been observed: a group that is not
        observed yet must not be taken for a deleted one.
        """
        for group_id, reservation in list(self._reservations.items()):
            group = self._observed.groups.get(group_id)
            seen = through.get(group_id.partition("/")[0], 0) >= reservation.revision
            if seen and (group is None or group.uid != reservation.uid or not group.total):
                self._set_reservation(group_id, None)


def _subtract(usage: PodUsage, counted: Amounts) -> PodUsage:
    """Returns the usage without the amounts that are counted already."""
    if not counted:
        return usage
    already = dict(counted)
    return replace(usage, amounts=tuple((name, max(0, n - already.get(name, 0))) for name, n in usage.amounts))


def _maximum(one: Amounts, other: Amounts) -> Amounts:
    first, second = dict(one), dict(other)
    return tuple(sorted((name, max(first.get(name, 0), second.get(name, 0))) for name in {*first, *second}))
