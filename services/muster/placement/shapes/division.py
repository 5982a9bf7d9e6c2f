"""One way to divide equal members over a tree: level by level from the top, towards the cheapest by the rules."""

from dataclasses import dataclass

from muster.gangs.capacity import Int64
from muster.placement.kernels.bounding import capacities
from muster.placement.kernels.searching import search
from muster.placement.room.trees import Tiers
from muster.placement.shapes.rules import Rule, table_of


@dataclass(frozen=True)
class Division:
    """Members on nodes: `nodes` are indexes into the tree's rows, rising, `counts` how many go there, both int64;
    `members` is their sum.
    """

    nodes: Int64
    counts: Int64
    members: int


class Divider:
    """Divides over the nodes of a tree by rules, ranges and factors taken as hard.

    `caps` is int64[nodes]: how many members each node can take; `tiers` as Tree.tiers of the rules' levels. `capacity`
    is a bound on how many can be placed: more can not, as many perhaps.
    """

    def __init__(self, rules: tuple[Rule, ...], tiers: Tiers, caps: Int64, wanted: int) -> None:
        self._rules = table_of(rules)
        self._tiers = tiers
        self._caps = capacities(caps, self._rules, tiers.starts, tiers.table, wanted)
        self.capacity = int(self._caps[0])

    def place(self, members: int) -> Division | None:
        """So many members; None if this way of dividing does not find a place."""
        tiers = self._tiers
        nodes, counts, _, _ = search(self._rules, tiers.starts, tiers.table, self._caps, members)
        return Division(nodes, counts, members) if len(nodes) else None
