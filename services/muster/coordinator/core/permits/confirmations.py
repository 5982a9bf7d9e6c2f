"""Acknowledged binds that are not observed in time: the API server has lost them, as after a restore from a backup.

A pod of which binding reported that it is bound, or that was observed bound and is shown without a node again, keeps
its place until CONFIRMATION_SECONDS have passed: a replica of cluster-state may be behind. If it is still shown without
a node then, its bind is lost, and it is placed again. Binding reports the node of a pod that is bound after all.
"""

from typing import Final

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.gang.gang import Gang

CONFIRMATION_SECONDS: Final = 30.0
"""Time from an acknowledged bind, or the last snapshot, until the pod must be observed bound."""


class Confirmations:
    """When acknowledged binds must be observed, by pod, the earliest first.

    Bounded by the binds of CONFIRMATION_SECONDS: an entry ends then, or earlier if all before it have been observed.
    """

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[Gang, float]] = {}

    def expect(self, gang: Gang, uid: str, now: float) -> None:
        """The bind is acknowledged: it must be observed in time."""
        self._deadlines.pop(uid, None)
        self._deadlines[uid] = (gang, now + CONFIRMATION_SECONDS)

    def begin_again(self, cache: Cache, now: float) -> None:
        """After a snapshot: all acknowledged binds have their time again, unless their places are taken or gone."""
        for gang in list(cache.gangs.values()):
            if gang.acknowledged:
                self._doubt(cache, gang, now)

    def _doubt(self, cache: Cache, gang: Gang, now: float) -> None:
        """If no member of the gang is bound for certain, it keeps all places or none: it starts again whole (I1)."""
        taken = [uid for uid, seat in gang.acknowledged.items() if cache.ledger.overcommitted(seat.node, seat.class_id)]
        if taken and not (gang.bound or gang.seats):
            taken = list(gang.acknowledged)
        for uid in gang.acknowledged:
            self.expect(gang, uid, now)
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
        while self._deadlines:
            uid, (gang, _) = next(iter(self._deadlines.items()))
            if uid in gang.acknowledged:
                break
            del self._deadlines[uid]


def _lose(cache: Cache, gang: Gang, uids: list[str]) -> None:
    for uid in uids:
        if uid in gang.acknowledged:
            cache.lose_bind(gang, uid)
