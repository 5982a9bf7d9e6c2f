"""Pods that use a ResourceClaim: of those that start together, gangs of one group or pods of one gang, one requests the
devices that they share.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

Start = str | tuple[str, ...]
"""Gangs that start together: the id of one, or the ids of the gangs of a group, which all declare the same group."""

MAX_USERS: Final = 256
"""Entries that the API server accepts in status.reservedFor of a claim."""


class UserPlace(NamedTuple):
    """Sort key of a pod among the users of a claim: bound ones first, then the oldest."""

    pending: bool
    since: int
    uid: str


class _Use(NamedTuple):
    gang: str
    start: Start
    place: UserPlace


class DeviceClaimUsers:
    """The pods that use one claim. `put` and `discard` return the others whose demands change. Entries end with the use
    (I11).
    """

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}
        self._order: list[UserPlace] = []
        self._starts: dict[Start, list[UserPlace]] = {}
        self._gangs: Counter[str] = Counter()
        """Numbers of pods."""

    def __len__(self) -> int:
        return len(self._uses)

    def __iter__(self) -> Iterator[str]:
        """Uids of the pods."""
        return iter(self._uses)

    def __contains__(self, uid: object) -> bool:
        return uid in self._uses

    @property
    def gangs(self) -> int:
        """Number of gangs that the pods belong to; a pod without a gang is one of its own."""
        return len(self._gangs)

    @property
    def has_bound(self) -> bool:
        """Whether one of the pods has a node."""
        return bool(self._order) and not self._order[0].pending

    def requests(self, uid: str) -> bool:
        """The pod requests the devices that it shares with the pods that start together with it."""
        use = self._uses[uid]
        return self._starts[use.start][0] == use.place

    def exceeds_limit(self, uid: str) -> bool:
        """As many pods as the API server reserves a claim for come before the pod."""
        return len(self._order) > MAX_USERS and bisect_left(self._order, self._uses[uid].place) >= MAX_USERS

    def put(self, uid: str, gang: str, start: Start, place: UserPlace) -> set[str]:
        """Add a pod."""
        before = self._decisive(start)
        self._uses[uid] = _Use(gang, start, place)
        insort(self._order, place)
        insort(self._starts.setdefault(start, []), place)
        self._gangs[gang] += 1
        return self._others(before ^ self._decisive(start), uid)

    def discard(self, uid: str) -> set[str]:
        """Remove a pod, if it is known."""
        if uid not in self._uses:
            return set()
        gang, start, place = self._uses[uid]
        before = self._decisive(start)
        del self._uses[uid], self._order[bisect_left(self._order, place)]
        together = self._starts[start]
        del together[bisect_left(together, place)]
        if not together:
            del self._starts[start]
        self._gangs[gang] -= 1
        if not self._gangs[gang]:
            del self._gangs[gang]
        return self._others(before ^ self._decisive(start), uid)

    def _decisive(self, start: Start) -> set[tuple[str, str]]:
        """Pods whose demands depend on being among these, by the reason: the one of `start` that requests devices, the
        only pod, the one that requests devices if there is only one gang, and the last pods within the limit.
        """
        found = {("requests", places[0].uid) for places in (self._starts.get(start),) if places}
        if len(self._order) == 1:
            found.add(("alone", self._order[0].uid))
        if len(self._gangs) == 1:
            found.update(("one gang", places[0].uid) for places in self._starts.values())
        if len(self._order) > MAX_USERS:
            found.update(("limit", each.uid) for each in self._order[MAX_USERS - 1 : MAX_USERS + 1])
        return found

    def _others(self, differing: set[tuple[str, str]], uid: str) -> set[str]:
        return {each for _, each in differing if each != uid and each in self._uses}
