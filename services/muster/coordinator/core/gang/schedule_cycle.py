"""Schedule cycles: Koordinator's bookkeeping of which members were tried when."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class ScheduleCycle:
    """`number` starts at 1. A failure makes the cycle invalid; it ends, and the next begins valid, when all of
    total-number members have been tried in it.

    A gang may have fewer members than its total-number; waiting for a try of members that do not exist would be a
    false wait (I7), so a new try after an invalid cycle begins the next one in any case.
    """

    number: int = 1
    valid: bool = True
    tried: set[str] = field(default_factory=set)

    def begin_try(self, uids: Iterable[str]) -> None:
        """Members are about to be tried."""
        if not self.valid:
            self._next()
        self.tried.update(uids)

    def fail(self, total: int) -> None:
        """The try failed."""
        self.valid = False
        if len(self.tried) >= total:
            self._next()

    def _next(self) -> None:
        self.number += 1
        self.valid = True
        self.tried.clear()
