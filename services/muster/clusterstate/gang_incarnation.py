"""Tells apart successive gangs of the same name that only their pods declare.

A gang may be deleted and declared again under the same name while pods of the old gang are still terminating. Decisions
for the old gang must not apply to the new one (G35); yet a gang of which single pods are replaced stays the same (G16).
The rules, which use nothing but pods:

* A pod is live until it has ended or is being deleted.
* Pods are grouped by their controller; pods without a controller form one group. A controller recreates missing pods,
  and its uid changes when the user deletes and creates it.
* An incarnation lasts as long as its group has a live pod and, while no other group has one, as long as it has a pod
  that is not being deleted: a failed pod is about to be replaced.
* Then the group of the oldest live pod begins the next incarnation. Its name is the controller's uid, or the uid of the
  group's oldest live pod.

Events decide in the order of their revisions, so that replicas that saw the same history agree. A replica that starts
later sees only the present state; it agrees too, unless in a group without controller the pod that gave the name is
gone by then, or was created before an older one of the same second.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from enum import IntEnum

from msgspec import Struct

from muster.dialects.marks import PodAge

NO_CONTROLLER = ""


class MemberState(IntEnum):
    """How far a pod is in its life."""

    LIVE = 0
    ENDED = 1
    DELETING = 2


class Member(Struct, frozen=True, gc=False):
    """A pod of a gang. `controller` is the uid of its controller, or NO_CONTROLLER; `succeeded`: it ended so."""

    age: PodAge
    state: MemberState
    controller: str
    succeeded: bool = False


class Incarnation:
    """The name of a gang's present incarnation; empty before the first. Counts are by controller of its pods, and end
    with their last pod (I11).
    """

    def __init__(self) -> None:
        self.name = ""
        self._controller: str | None = None
        self._live: Counter[str] = Counter()
        self._not_deleting: Counter[str] = Counter()  # live or ended

    @property
    def controllers(self) -> Collection[str]:
        """Controllers with pods that are not being deleted, NO_CONTROLLER included."""
        return self._not_deleting.keys()

    def change(self, before: Member | None, after: Member | None) -> None:
        """A pod was added (before: None), changed, or removed (after: None)."""
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)

    def decide(self, members: Iterable[Member]) -> None:
        """Begin the next incarnation if this one is over. `members`: pods, at least the oldest of each state; they are
        read only in that case.
        """
        if self._controller is not None and self._is_over(self._controller):
            self._controller = None
        if self._controller is None and self._not_deleting:
            state = MemberState.LIVE if self._live else MemberState.ENDED
            first = min((each for each in members if each.state is state), key=_age)
            self._controller = first.controller
            self.name = first.controller or first.age.uid
        elif not self.name and (oldest := min(members, key=_age, default=None)) is not None:
            # All pods are being deleted. The next live one begins an incarnation of its own.
            self.name = oldest.controller or oldest.age.uid

    def _is_over(self, controller: str) -> bool:
        return not self._live[controller] and (bool(self._live) or not self._not_deleting[controller])

    def _count(self, member: Member, by: int) -> None:
        if member.state is MemberState.LIVE:
            _add(self._live, member.controller, by)
        if member.state is not MemberState.DELETING:
            _add(self._not_deleting, member.controller, by)


def _age(member: Member) -> PodAge:
    return member.age


def _add(counter: Counter[str], key: str, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
