"""Which life of a gang this is, when only its pods declare it.

A gang may be deleted and declared anew under the same name while pods of its former life are still on their way out.
What was decided for the former must not hold for the later (G35); yet a gang of which single pods are replaced stays
the same (G16). Pods alone tell the two apart:

* A pod is live until it has ended or is being deleted.
* Pods with the same controller are one line; those without a controller are one line together. A controller makes anew
  the pods that it misses, and its uid changes when the user deletes and creates it.
* A gang keeps its incarnation as long as its line has a live pod, and, while no other line has one, as long as it has a
  pod that is not being deleted: one that failed is about to be replaced.
* Then the line of the oldest live pod begins the next one. It is named by the controller's uid, or by the uid of the
  line's oldest live pod.

Events decide in the order of their revisions, so that replicas that saw the same history agree. One that comes later
sees only what is there now; it agrees too, unless in a line without controller the pod that gave the name is gone by
then, or came before an older one of the same second.
"""

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum

from msgspec import Struct

from muster.dialects.marks import PodAge

NO_CONTROLLER = ""


class Standing(IntEnum):
    """What a pod still means to its gang."""

    LIVE = 0
    ENDED = 1
    LEAVING = 2


class Member(Struct, frozen=True, gc=False):
    """A pod of a gang. `line` is the uid of its controller, NO_CONTROLLER without one."""

    age: PodAge
    standing: Standing
    line: str


class Incarnation:
    """The name of a gang's present life; empty before the first."""

    def __init__(self) -> None:
        self.name = ""
        self._line: str | None = None
        self._live: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()  # ended or live

    def change(self, before: Member | None, after: Member | None) -> None:
        """A pod came (before: None), changed, or went (after: None)."""
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)

    def decide(self, members: Iterable[Member]) -> None:
        """Go on to the next life if this one is over. `members` are all pods; they are looked at only then."""
        if self._line is not None and self._is_over(self._line):
            self._line = None
        if self._line is None and self._kept:
            standing = Standing.LIVE if self._live else Standing.ENDED
            first = min((each for each in members if each.standing is standing), key=_age)
            self._line = first.line
            self.name = first.line or first.age.uid
        elif not self.name and (oldest := min(members, key=_age, default=None)) is not None:
            # All are being deleted. The next live one begins a life of its own.
            self.name = oldest.line or oldest.age.uid

    def _is_over(self, line: str) -> bool:
        return not self._live[line] and (bool(self._live) or not self._kept[line])

    def _count(self, member: Member, by: int) -> None:
        if member.standing is Standing.LIVE:
            _add(self._live, member.line, by)
        if member.standing is not Standing.LEAVING:
            _add(self._kept, member.line, by)


def _age(member: Member) -> PodAge:
    return member.age


def _add(counter: Counter[str], key: str, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
