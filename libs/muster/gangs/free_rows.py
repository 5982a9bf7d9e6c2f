"""Free rows of arrays, used again in lots."""

from array import array
from typing import Final

_MIN_LOT: Final = 1024


class FreeRows:
    """Rows whose content was removed. They are used again in lots of at least 1,024 rows and a quarter of all, because
    whatever was derived from rows has to be derived anew then; so at most as many rows are unused.

    Rows are kept as machine integers: an int object of each would outlive the workload amid which it was allocated
    (I11).
    """

    def __init__(self) -> None:
        self.began_lot = False
        """The row last taken is the first of its lot: what was derived from rows before is void."""
        self._lot = array("q")
        self._fresh = False
        self._freed = array("q")

    def give(self, row: int, size: int) -> None:
        """Take in a row that became free, of `size` rows in all."""
        self._freed.append(row)
        if not self._lot and len(self._freed) >= max(_MIN_LOT, size // 4):
            self._lot, self._freed, self._fresh = self._freed, array("q"), True

    def take(self) -> int | None:
        """A row to use again; None: append one."""
        if not self._lot:
            return None
        self.began_lot, self._fresh = self._fresh, False
        return self._lot.pop()
