"""Acknowledged binds that the API server has lost by a restore from a backup.

After a snapshot that is older than what was seen before, a pod of which binding reported that it is bound, or that was
observed bound and is shown without a node again, keeps its place until CONFIRMATION_SECONDS have passed: a replica of
cluster-state may only be behind. If it is still shown without a node then, its bind is lost, and it is placed again.
Binding reports the node of a pod that is bound after all. Otherwise acknowledged binds are believed, however long they
are not observed: what is shown may be late, and the capacity is used.
"""

from typing import Final

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.state import ActionState

CONFIRMATION_SECONDS: Final = 30.0
"""Time from a snapshot that went back, or an acknowledgement soon after, until the pod must be observed bound."""


class Confirmations:
    """When acknowledged binds must be observed, by pod, the earliest first.

    Bounded by the binds that were known at the last such snapshot: an entry ends when it is acknowledged or observed,
    or after CONFIRMATION_SECONDS, once all before it have ended.
    """

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[Gang, float]] = {}
        self._under_way: dict[str, Gang] = {}
        """Pods whose binds were under way at the last such snapshot: carried out before the restore or after it."""

    def acknowledge(self, gang: Gang, uid: str, now: float) -> None:
        """The bind is acknowledged; if it was under way during a restore, it must be observed in time."""
        if self._under_way.pop(uid, None) is not None:
            self._expect(gang, uid, now)

    def begin_again(self, cache: Cache, now: float) -> None:
        """After a snapshot. If it went back, acknowledged binds must be observed in time, and those whose places are
        taken or gone are lost at once.
        """
        if not cache.went_back:
            return
        self._under_way.clear()
        for gang in list(cache.gangs.values()):
            sent = (uid for uid, held in gang.seats.items() if held.state is not ActionState.DECIDED)
            self._under_way.update(dict.fromkeys(sent, gang))
            if gang.acknowledged:
                self._doubt(cache, gang, now)

    def _expect(self, gang: Gang, uid: str, now: float) -> None:
        self._deadlines.pop(uid, None)
        self._deadlines[uid] = (gang, now + CONFIRMATION_SECONDS)

    def _doubt(self, cache: Cache, gang: Gang, now: float) -> None:
        """If no member of the gang is bound for certain, it keeps all places or none: it starts again whole (I1)."""
        taken = [uid for uid, seat in gang.acknowledged.items() if cache.ledger.overcommitted(seat.node, seat.class_id)]
        if taken and not (gang.bound or gang.seats):
            taken = list(gang.acknowledged)
        for uid in gang.acknowledged:
            self._expect(gang, uid, now)
        _lose(cache, gang, taken)

    def next_time(self) -> float | None:
        """When the next bind must have been observed."""
        self._forget_observed()
        return next((time for _, time in self._deadlines.values()), None)

    def due(self, cache: Cache, now: float) -> None:
        """Give up the binds whose time is over. Only while the cluster is observed."""
        for gang in cache.take_doubtful():
            self._doubt(cache, gang, now)
        self._forget_observed()
        while self._deadlines:
            uid, (gang, time) = next(iter(self._deadlines.items()))
            if time > now:
                break
            del self._deadlines[uid]
            _lose(cache, gang, [uid])

    def _forget_observed(self) -> None:
        while self._under_way:
            uid, gang = next(iter(self._under_way.items()))
            if uid in gang.seats:
                break
            del self._under_way[uid]
        while self._deadlines:
            uid, (gang, _) = next(iter(self._deadlines.items()))
            if uid in gang.acknowledged:
                break
            del self._deadlines[uid]


def _lose(cache: Cache, gang: Gang, uids: list[str]) -> None:
    for uid in uids:
        if uid in gang.acknowledged:
            cache.lose_bind(gang, uid)
