"""The cost that an evaluation may still spend."""

from muster.cel.errors import OverBudget


class Budget:
    """Units of cost left. A unit is about one operation, one item of a list, or ten characters."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def charge(self, cost: int) -> None:
        """Spend before the work is done. Raises OverBudget."""
        self.left -= cost
        if self.left < 0:
            raise OverBudget
