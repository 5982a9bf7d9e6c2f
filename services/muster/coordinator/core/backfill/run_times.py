"""Which owners' declared run times are believed.

The owner of a gang is its namespace and the series of its name, so that the pods of a Job, the runs of a CronJob and
gangs under new names have one. A declaration that was overrun is not believed again for its owner: for a day after the
last overrun.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.state import RunTime
from muster.coordinator.core.term_state import OverrunOwner, monotonic_time, unix_time
from muster.gangs.series import series

DISTRUST_SECONDS: Final = 86400.0
MAX_OWNERS: Final = 4096
"""Owners that overran; the one that did the longest ago is forgotten first."""

Owner = tuple[str, str]
"""Namespace and series."""


class RunTimes:
    """One RunTime for all gangs of an owner, as long as there are any."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Owner, RunTime] = WeakValueDictionary()
        self._overran: OrderedDict[Owner, tuple[RunTime, float]] = OrderedDict()
        """The monotonic time of the last overrun, the earliest first; an entry ends after DISTRUST_SECONDS."""

    def of(self, gang_id: str) -> RunTime:
        """The owner's, shared by all of its gangs."""
        owner = owner_of(gang_id)
        run_time = self._known.get(owner)
        if run_time is None:
            run_time = self._known[owner] = RunTime()
        return run_time

    def overrun(self, gang_id: str, now: float) -> None:
        """A pod of the gang runs for longer than it declared."""
        owner, run_time = owner_of(gang_id), self.of(gang_id)
        run_time.overrun()
        self._overran[owner] = run_time, now
        self._overran.move_to_end(owner)
        if len(self._overran) > MAX_OWNERS:
            self._forget()

    def update(self, now: float) -> None:
        """Believe owners again that did not overrun for long enough."""
        while self._overran and next(iter(self._overran.values()))[1] + DISTRUST_SECONDS <= now:
            self._forget()

    def _forget(self) -> None:
        _, (run_time, _) = self._overran.popitem(last=False)
        run_time.believe()

    def term_state(self, now: Now) -> tuple[OverrunOwner, ...]:
        """Owners that overran."""
        return tuple(OverrunOwner(*owner, unix_time(at, now)) for owner, (_, at) in self._overran.items())

    def resume(self, owners: Iterable[OverrunOwner], now: Now) -> None:
        """Continue with these."""
        for each in owners:
            self.overrun(f"/{each.namespace}/{each.series}", monotonic_time(each.at, now))


def owner_of(gang_id: str) -> Owner:
    """Of `dialect/namespace/name`."""
    _, namespace, name = gang_id.split("/", 2)
    return namespace, series(name)
