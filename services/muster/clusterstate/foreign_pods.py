"""Pods with the marks of a gang that another scheduler places: they are no members, which a Warning says."""

from bisect import bisect_left, insort
from typing import Final

from msgspec.structs import replace

from muster.dialects.marks import PodAge
from muster.dialects.sources import warning
from muster.gangs.facts import OTHER_SCHEDULER, Problem
from muster.gangs.quoting import quoted

_NAMED: Final = 3
"""Pods that the Warning names, the oldest ones: more would change it with every further pod."""

_Entry = tuple[PodAge, str, bool]
"""A pod, its scheduler, and whether it is live: it has not ended and is not being deleted."""


class ForeignPods:
    """Pods of other schedulers by the gang that their marks name. Entries end with the pod (I11)."""

    def __init__(self) -> None:
        self._of_pod: dict[str, tuple[str, _Entry]] = {}
        self._count: dict[str, int] = {}
        self._live: dict[str, list[_Entry]] = {}

    def __len__(self) -> int:
        return len(self._of_pod)

    def put(self, gang_id: str, age: PodAge, scheduler: str, *, live: bool) -> tuple[str, ...]:
        """Add or update a pod; returns the gangs for which this makes a difference."""
        entry = age, scheduler, live
        if self._of_pod.get(age.uid) == (gang_id, entry):
            return ()
        left = self.drop(age.uid)
        self._of_pod[age.uid] = gang_id, entry
        self._count[gang_id] = self._count.get(gang_id, 0) + 1
        if live:
            insort(self._live.setdefault(gang_id, []), entry)
        return (*left, gang_id)

    def drop(self, uid: str) -> tuple[str, ...]:
        """Remove a pod; returns the gang for which this makes a difference."""
        known = self._of_pod.pop(uid, None)
        if known is None:
            return ()
        gang_id, entry = known
        self._count[gang_id] -= 1
        if not self._count[gang_id]:
            del self._count[gang_id]
        if entry[2]:
            entries = self._live[gang_id]
            del entries[bisect_left(entries, entry)]
            if not entries:
                del self._live[gang_id]
        return (gang_id,)

    def has(self, gang_id: str) -> bool:
        """Whether any pod has the gang's marks, ended ones included."""
        return gang_id in self._count

    def problem(self, gang_id: str) -> Problem | None:
        """The Warning for a gang; None without live pods of that kind."""
        entries = self._live.get(gang_id)
        if not entries:
            return None
        pods = ", ".join(f"{quoted(age.name)} ({quoted(scheduler)})" for age, scheduler, _ in entries[:_NAMED])
        more = " and others" if len(entries) > _NAMED else ""
        message = (
            f"pods with the marks of this gang have another schedulerName and are no members: {pods}{more}. "
            "Give all pods of the gang the same schedulerName"
        )
        return replace(warning(message), reason=OTHER_SCHEDULER)
