"""One way to divide equal members over a tree: level by level from the top, towards the cheapest by the rules."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.bounding import (
    allowed,
    even_bounds,
    held_above,
    most_promising,
    packed_bounds,
    tightest,
)
from muster.placement.kernels.dividing import NEVER, divide, fewest, most_even
from muster.placement.room.trees import Children
from muster.placement.shapes.rules import Rule, Shape

_MOST_TRIED: Final = 64
_TRIED_BY_NODES: Final = 2_000
"""Domains that are tried besides the tightest of each level, the most promising first: few where there are many nodes.
Where there are thousands, only the domain is tried that is best on the next level, by what it promises there.
"""
_MOST_COUNTED: Final = 20_000
"""Domains of which it is counted how many are needed, which takes sorting them."""
_BOUND_BITS: Final = 62
_TOP: Final = np.zeros(1, np.int64)
"""The one domain above the first tier."""
_ANYTHING: Final = Rule(0)
_UNTOLD: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Division:
    """Members on nodes: `nodes` are indexes into the tree's rows, rising, `counts` how many go there, both int64;
    `members` is their sum.
    """

    nodes: Int64
    counts: Int64
    members: int


@dataclass(frozen=True)
class _Found:
    """`cost` is that of the levels below; ranges and factors cost nothing, since all of them hold."""

    division: Division
    cost: int


class Divider:
    """Divides over the nodes of a tree by rules, ranges and factors taken as hard.

    `caps` is int64[nodes]: how many members each node can take; `children` as Tree.children of the rules' levels.
    `capacity` is a bound on how many can be placed: more can not, as many perhaps.
    """

    def __init__(self, rules: tuple[Rule, ...], children: list[Children], caps: Int64, wanted: int) -> None:
        self._rules = rules
        self._children = children
        self._last = len(rules) - 1
        self._caps = [_allowed(rules[-1], caps)]
        for tier in range(self._last - 1, -1, -1):
            starts = children[tier].starts
            self._caps.insert(0, _capacity(rules[tier + 1], self._caps[0], starts, wanted, rules[tier]))
        self._found: tuple[_Search, _Found | None] | None = None
        top = np.array([0, len(self._caps[0])])
        self.capacity = int(_capacity(rules[0], self._caps[0], top, wanted, _ANYTHING)[0])

    def place(self, members: int) -> Division | None:
        """So many members; None if this way of dividing does not find a place."""
        search = _Search(self._rules, self._children, self._caps, members)
        found = search.narrow(0, 0, len(self._caps[0]))
        self._found = (search, found)
        return None if found is None else found.division

    @property
    def found_best(self) -> bool:
        """No other place costs less than the one that was found last."""
        if self._found is None:
            return False
        search, found = self._found
        return found is not None and found.cost <= search.least(0, len(self._caps[0]))


class _Search:
    def __init__(self, rules: tuple[Rule, ...], children: list[Children], caps: list[Int64], members: int) -> None:
        self._rules = rules
        self._children = children
        self._caps = caps
        self._members = members
        self._last = len(rules) - 1
        self._bits = members.bit_length()
        self._widths = _widths(rules, self._bits)
        self._dropped = max(0, sum(self._widths[0]) - _BOUND_BITS)
        """Low bits of costs that bounds do not have."""
        self._roomiest: list[int | None] = [None] * len(rules)
        self._tries = max(1, min(_MOST_TRIED, _TRIED_BY_NODES // max(1, len(caps[-1]))))
        self._exactly = self._tries > 1
        self._bounds: dict[int, Int64] = {}
        self._all = np.array([members])

    def narrow(self, tier: int, first: int, last: int) -> _Found | None:
        """All members in domains `first` to before `last` of a tier, which are those of one domain above."""
        rule = self._rules[tier]
        if rule.shape is Shape.PACK and self._members >= rule.least and self._members % rule.step == 0:
            at, fitting = tightest(self._caps[tier], first, last, self._members)
            if fitting:
                found = self._in_one(tier, first, last, at, fitting)
                if found is not None or rule.shape_is_hard:
                    return found
        return self._fan_out(tier, first, last)

    def _in_one(self, tier: int, first: int, last: int, at: int, fitting: int) -> _Found | None:
        """In one of the `fitting` domains that have room for all, of which `at` is the tightest: the one that costs
        least below, the tightest of those.
        """
        if tier == self._last:
            return _Found(Division(np.array([at]), self._all, self._members), self._cost(tier, 1, 0))
        if fitting > 1 and not self._exactly:
            terms = self._next_terms(tier, first, last)
            at = int(most_promising(terms, self._caps[tier], first, last, self._members, 1)[0])
        best = self._in_domain(tier, at)
        if fitting > 1 and (best is None or (self._exactly and best.cost > self._least_below(tier))):
            best = self._in_better(tier, first, last, at, best)
        return None if best is None else _Found(best.division, best.cost + self._cost(tier, 1, 0))

    def _in_better(self, tier: int, first: int, last: int, tried: int, best: _Found | None) -> _Found | None:
        """The best in one of these domains that have room for all, but for the one that was `tried`."""
        bounds = self._bounds_below(tier)[first:last]
        promising = most_promising(bounds, self._caps[tier], first, last, self._members, self._tries + 1)
        for at in promising.tolist():
            if not self._tries or (best is not None and int(bounds[at - first]) >= best.cost >> self._dropped):
                break
            if at == tried:
                continue
            self._tries -= 1
            found = self._in_domain(tier, at)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def _least_below(self, tier: int) -> int:
        return self.least(tier + 1, self._children[tier].most)

    def _next_terms(self, tier: int, first: int, last: int) -> Int64:
        """What all members cost at least on the next tier alone in domains `first` to before `last`, in any unit."""
        if self._rules[tier + 1].shape is Shape.PACK:
            return self._fewest(tier, first, last)
        return self._bound(tier, first, last)

    def _fewest(self, tier: int, first: int, last: int) -> Int64:
        """How many domains of the next tier it takes within each of domains `first` to before `last`."""
        starts = self._children[tier].starts
        counted = bool(starts[last] - starts[first] <= _MOST_COUNTED)
        return fewest(self._caps[tier + 1], starts, first, last, self._members, counted)

    def _in_domain(self, tier: int, domain: int) -> _Found | None:
        starts = self._children[tier].starts
        return self.narrow(tier + 1, int(starts[domain]), int(starts[domain + 1]))

    def _fan_out(self, tier: int, first: int, last: int) -> _Found | None:
        """Over several domains, and in each of them over several below: no way is tried twice."""
        domains, sizes, starts, cost = _TOP, self._all, np.array([first, last]), 0
        for below in range(tier, self._last + 1):
            rule, caps = self._rules[below], self._caps[below]
            found = np.empty((2, min(self._members, len(caps))), np.int64)
            used, squares, off = divide(*rule.division, caps, starts, domains, sizes, found[0], found[1])
            if squares == NEVER:
                return None
            domains, sizes = found[0, :used], found[1, :used]
            if rule.shape is Shape.PACK:
                cost += self._cost(below, used, 0)
            else:
                cost += self._cost(below, off if rule.shape is Shape.PARTITION else 0, squares)
            if below < self._last:
                starts = self._children[below].starts
        return _Found(Division(domains, sizes, self._members), cost)

    # -- costs: integers in which the terms of upper levels weigh more than all of those below

    def _cost(self, tier: int, domains: int, squares: int) -> int:
        rule, (_, shift) = self._rules[tier], self._widths[tier]
        if not rule.counts:
            return 0
        if rule.shape is not Shape.PACK:
            domains <<= 2 * self._bits + 1
        return domains + squares << shift

    def _most(self, tier: int) -> int:
        """What the roomiest domain of a tier can take."""
        most = self._roomiest[tier]
        if most is None:
            most = self._roomiest[tier] = int(self._caps[tier].max(initial=0))
        return most

    def least(self, tier: int, domains: int) -> int:
        """What all members cost at least on a tier and below, within one domain above that has so many domains."""
        least, used = 0, 1
        for below in range(tier, self._last + 1):
            rule = self._rules[below]
            if rule.shape is Shape.PACK:
                used = max(used, -(-self._members // max(1, self._most(below))))
                least += self._cost(below, used, 0)
                domains = used * self._children[below].most if below < self._last else 0
                continue
            parts = min(self._members // rule.least, domains)
            if rule.shape is Shape.PARTITION:
                parts = min(parts, rule.parts)
            each, more = divmod(self._members, max(parts, 1))
            squares = max(parts, 1) * each * each + more * (2 * each + 1)
            off = rule.parts - parts if rule.shape is Shape.PARTITION else 0
            return least + self._cost(below, off, squares)
        return least

    def _bounds_below(self, tier: int) -> Int64:
        """What all members cost at least below each domain of a tier, shifted: int64[domains]."""
        bounds = self._bounds.get(tier)
        if bounds is None:
            bounds = self._bounds[tier] = self._bound(tier, 0, len(self._caps[tier]))
        return bounds

    def _bound(self, tier: int, first: int, last: int) -> Int64:
        """Of domains `first` to before `last`: int64[last - first]."""
        below, starts = tier + 1, self._children[tier].starts
        rule, caps, (width, shift) = self._rules[below], self._caps[below], self._widths[below]
        if not width or shift + width <= self._dropped:
            return np.zeros(last - first, np.int64)
        by = shift - self._dropped
        if rule.shape is Shape.PACK:
            further = _UNTOLD if below == self._last else self._bounds_below(below)
            one, several = (1 << by if by >= 0 else 1 >> -by), self._fewest(tier, first, last)
            return packed_bounds(caps, starts, first, last, self._members, further, one, several, by)
        parts = rule.parts if rule.shape is Shape.PARTITION else 0
        return even_bounds(caps, starts, first, last, self._members, rule.least, parts, 2 * self._bits + 1, by)


@lru_cache(maxsize=4096)
def _widths(rules: tuple[Rule, ...], bits: int) -> tuple[tuple[int, int], ...]:
    """Bits of each tier's term of a cost, and of those below it."""
    widths = [_width(rule, bits) for rule in rules]
    return tuple((width, sum(widths[tier + 1 :])) for tier, width in enumerate(widths))


def _width(rule: Rule, bits: int) -> int:
    if not rule.counts:
        return 0
    return {Shape.PACK: bits + 1, Shape.SPREAD: 2 * bits + 1, Shape.PARTITION: 3 * bits + 2}[rule.shape]


def _allowed(rule: Rule, caps: Int64) -> Int64:
    """The largest size that the rule's range and factor allow in each domain."""
    if not (rule.has_range or rule.has_step):
        return caps
    sizes = np.empty(len(caps), np.int64)
    allowed(caps, rule.most, rule.least, rule.step, sizes)
    return sizes


def _capacity(rule: Rule, caps: Int64, starts: Int64, wanted: int, above: Rule) -> Int64:
    """A bound on the members that a rule lets into each domain of the one `above`, by what those below it can take."""
    if rule.shape_is_hard and rule.shape is not Shape.PACK:
        even = most_even(caps, starts, rule.parts, int(rule.step == 1))
        return _allowed(above, np.minimum(even, wanted))
    held = np.empty(len(starts) - 1, np.int64)
    held_above(caps, starts, rule.shape_is_hard, wanted, above.most, above.least, above.step, held)
    return held
