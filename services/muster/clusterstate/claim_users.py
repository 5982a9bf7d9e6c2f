"""Pods that use claims, and which of them holds a claim that one pod only may use."""

from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct

from muster.kube.volume_facts import ClaimOfPod


class Use(Struct, frozen=True, gc=False):
    """A pod that uses claims. `node`: of a pod that is seated; `since` orders the pods that compete for a
    ReadWriteOncePod claim.
    """

    uid: str
    namespace: str
    name: str
    claims: tuple[ClaimOfPod, ...]
    node: str
    since: int


class ClaimUsers:
    """Pods that use a claim, those on nodes before others, older before newer. Entries end with the use (I11)."""

    def __init__(self) -> None:
        self._order: list[tuple[bool, int, str]] = []

    def __len__(self) -> int:
        """Number of pods."""
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        """Uids of the pods."""
        return (uid for _, _, uid in self._order)

    @property
    def first(self) -> str:
        """The pod that holds the claim if one pod only may use it; empty without any."""
        return self._order[0][2] if self._order else ""

    def add(self, use: Use) -> None:
        place = (not use.node, use.since, use.uid)
        at = bisect_left(self._order, place)
        if self._order[at : at + 1] != [place]:
            self._order.insert(at, place)

    def discard(self, use: Use) -> None:
        place = (not use.node, use.since, use.uid)
        at = bisect_left(self._order, place)
        if self._order[at : at + 1] == [place]:
            del self._order[at]
