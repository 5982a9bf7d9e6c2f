"""Which groups are asked for at the same time, of several replicas of placement."""

from muster.coordinator.core.apart import Apart
from muster.coordinator.core.group import Group
from muster.coordinator.core.kept_room import demand

FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 600.0
MOST_GROUPS_AT_RISK = 10
"""Groups of one such question: who finds the room taken is asked for twice, and others wait for it meanwhile."""


class Together:
    """Groups of one solve: they have no node in common with others that are under way, and are not such that they could
    go to a replica of their own. At a risk: they may have nodes in common.
    """

    def __init__(self, apart: Apart, others: set[str], *, at_risk: bool) -> None:
        self._apart, self._others = apart, others
        self._independent = apart.conflicts_show if at_risk else apart.are
        self._classes: set[str] = set()

    def fits_in(self, group: Group) -> bool:
        """The group belongs to the solve; from then on it is a part of it."""
        classes = demand(group).keys()
        if not self._independent(classes, self._others):
            return False
        if self._classes and self._apart.are(classes, self._classes):
            return False
        self._classes.update(classes)
        return True


class Risks:
    """Whether it is worth while to ask for groups that may want the same nodes as others under way.

    While they got in each other's way it is tried again only now and then: the longer, the more often in a row.
    """

    def __init__(self) -> None:
        self._not_before = 0.0
        self._pause = FIRST_PAUSE_SECONDS

    def worth_it(self, now: float) -> bool:
        """It may be tried."""
        return now >= self._not_before

    def came_out(self, overtaken: bool, now: float) -> None:
        """It was tried, and somebody found the room taken, or nobody did."""
        if overtaken:
            self._not_before = now + self._pause
            self._pause = min(LONGEST_PAUSE_SECONDS, 2 * self._pause)
        else:
            self._pause = FIRST_PAUSE_SECONDS
