"""Pods that use a ResourceClaim, by gang: one of each gang requests the devices that its pods share."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_USERS: Final = 256
"""Entries that the API server accepts in status.reservedFor of a claim."""


class UserPlace(NamedTuple):
    """Sort key of a pod among the users of a claim: bound ones first, then the oldest."""

    pending: bool
    since: int
    uid: str


class DeviceClaimUsers:
    """The pods that use one claim. `put` and `discard` return the others whose demands change. Entries end with the use
    (I11).
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, UserPlace]] = {}
        self._order: list[UserPlace] = []
        self._gangs: dict[str, list[UserPlace]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        """Uids of the pods."""
        return iter(self._places)

    def __contains__(self, uid: object) -> bool:
        return uid in self._places

    @property
    def gangs(self) -> int:
        """Number of gangs that the pods belong to; a pod without a gang is one of its own."""
        return len(self._gangs)

    @property
    def has_bound(self) -> bool:
        """Whether one of the pods has a node."""
        return bool(self._order) and not self._order[0].pending

    def requests(self, uid: str) -> bool:
        """The pod requests the devices that the pods of its gang share."""
        gang, place = self._places[uid]
        return self._gangs[gang][0] == place

    def exceeds_limit(self, uid: str) -> bool:
        """As many pods as the API server reserves a claim for come before the pod."""
        return len(self._order) > MAX_USERS and bisect_left(self._order, self._places[uid][1]) >= MAX_USERS

    def put(self, uid: str, gang: str, place: UserPlace) -> set[str]:
        """Add a pod."""
        before = self._decisive(gang)
        self._places[uid] = gang, place
        insort(self._order, place)
        insort(self._gangs.setdefault(gang, []), place)
        return self._others(before ^ self._decisive(gang), uid)

    def discard(self, uid: str) -> set[str]:
        """Remove a pod, if it is known."""
        if uid not in self._places:
            return set()
        gang, place = self._places[uid]
        before = self._decisive(gang)
        del self._places[uid], self._order[bisect_left(self._order, place)]
        of_gang = self._gangs[gang]
        del of_gang[bisect_left(of_gang, place)]
        if not of_gang:
            del self._gangs[gang]
        return self._others(before ^ self._decisive(gang), uid)

    def _decisive(self, gang: str) -> set[tuple[str, str]]:
        """Pods whose demands depend on being among these, by the reason: the pod of the gang that requests devices, the
        only pod, the first pods of the gangs if there is only one gang, and the last pods within the limit.
        """
        found = {("requests", places[0].uid) for places in (self._gangs.get(gang),) if places}
        if len(self._order) == 1:
            found.add(("alone", self._order[0].uid))
        if len(self._gangs) == 1:
            [places] = self._gangs.values()
            found.add(("one gang", places[0].uid))
        if len(self._order) > MAX_USERS:
            found.update(("limit", each.uid) for each in self._order[MAX_USERS - 1 : MAX_USERS + 1])
        return found

    def _others(self, differing: set[tuple[str, str]], uid: str) -> set[str]:
        return {each for _, each in differing if each != uid and each in self._places}
