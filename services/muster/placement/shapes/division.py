"""One way to divide equal members over a tree: level by level from the top, towards the cheapest by the rules."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.room.trees import Children
from muster.placement.shapes.divide import divide, fewest, most_even
from muster.placement.shapes.rules import Rule, Shape

_MOST_TRIED: Final = 64
_TRIED_BY_NODES: Final = 2_000
"""Domains that are tried besides the tightest of each level, the most promising first: few where there are many nodes.
Where there are thousands, only the domain is tried that is best on the next level, by what it promises there.
"""
_MOST_COUNTED: Final = 20_000
"""Domains of which it is counted how many are needed, which takes sorting them."""
_BOUND_BITS: Final = 62
_WORST: Final = np.iinfo(np.int64).max


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
            held = _capacity(rules[tier + 1], self._caps[0], children[tier].starts, wanted)
            self._caps.insert(0, _allowed(rules[tier], held))
        self._found: tuple[_Search, _Found | None] | None = None
        top = np.array([0, len(self._caps[0])])
        self.capacity = int(_capacity(rules[0], self._caps[0], top, wanted)[0]) if top[1] else 0

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
        widths = [_width(rule, self._bits) for rule in rules]
        self._widths = [(width, sum(widths[tier + 1 :])) for tier, width in enumerate(widths)]
        """Bits of each tier's term and of those below it."""
        self._dropped = max(0, sum(widths) - _BOUND_BITS)
        """Low bits of costs that bounds do not have."""
        self._roomiest: list[int | None] = [None] * len(rules)
        self._tries = max(1, min(_MOST_TRIED, _TRIED_BY_NODES // max(1, len(caps[-1]))))
        self._exactly = self._tries > 1
        self._bounds: dict[int, Int64] = {}

    def narrow(self, tier: int, first: int, last: int) -> _Found | None:
        """All members in domains `first` to before `last` of a tier, which are those of one domain above."""
        caps, rule = self._caps[tier][first:last], self._rules[tier]
        if rule.shape is not Shape.PACK:
            return self._fan_out(tier, first, caps)
        fitting = np.flatnonzero(caps >= self._members)
        if len(fitting) and self._members >= rule.least and self._members % rule.step == 0:
            found = self._in_one(tier, first, caps, fitting)
            if found is not None or rule.shape_is_hard:
                return found
        return self._fan_out(tier, first, caps)

    def _in_one(self, tier: int, first: int, caps: Int64, fitting: Int64) -> _Found | None:
        """In one of the domains that have room for all: the one that costs least below, the tightest of those."""
        room = caps[fitting]
        at = int(room.argmin())
        if tier == self._last:
            node = np.array([first + int(fitting[at])])
            return _Found(Division(node, np.array([self._members]), self._members), self._cost(tier, 1, 0))
        if len(fitting) > 1 and not self._exactly:
            terms = self._next_terms(tier, first, first + len(caps))[fitting]
            at = int(np.lexsort((room, terms))[0])
        best = self._in_domain(tier, first + int(fitting[at]))
        if len(fitting) > 1 and (best is None or (self._exactly and best.cost > self._least_below(tier))):
            best = self._in_better(tier, first + fitting, room, at, best)
        return None if best is None else _Found(best.division, best.cost + self._cost(tier, 1, 0))

    def _in_better(self, tier: int, domains: Int64, room: Int64, tried: int, best: _Found | None) -> _Found | None:
        """The best in one of these domains, which have so much room, but for the one that was `tried`."""
        bounds = self._bounds_below(tier)[domains]
        for at in np.lexsort((room, bounds)).tolist():
            if not self._tries or (best is not None and int(bounds[at]) >= best.cost >> self._dropped):
                break
            if at == tried:
                continue
            self._tries -= 1
            found = self._in_domain(tier, int(domains[at]))
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def _least_below(self, tier: int) -> int:
        return self.least(tier + 1, self._children[tier].most)

    def _next_terms(self, tier: int, first: int, last: int) -> Int64:
        """What all members cost at least on the next tier alone in domains `first` to before `last`, in any unit."""
        below, within = tier + 1, self._children[tier].starts[first : last + 1]
        rule = self._rules[below]
        if rule.shape is not Shape.PACK:
            return self._bound(tier, first, last)
        caps, within = self._caps[below][int(within[0]) : int(within[-1])], within - within[0]
        most: Int64 = np.maximum.reduceat(caps, within[:-1])
        several = most < self._members
        if not several.any():
            return np.ones(len(most), np.int64)
        if len(caps) > _MOST_COUNTED:
            return -(-self._members // np.maximum(most, 1))
        return np.where(several, fewest(caps, within, self._members), 1)

    def _in_domain(self, tier: int, domain: int) -> _Found | None:
        starts = self._children[tier].starts
        return self.narrow(tier + 1, int(starts[domain]), int(starts[domain + 1]))

    def _fan_out(self, tier: int, first: int, caps: Int64) -> _Found | None:
        """Over several domains, and in each of them over several below: no way is tried twice."""
        counts = divide(self._rules[tier], caps, np.array([0, len(caps)]), np.array([self._members]))
        if counts is None:
            return None
        domains = np.flatnonzero(counts)
        sizes = counts[domains]
        domains += first
        cost = self._cost_of(tier, sizes, np.zeros(1, np.int64))
        while tier < self._last:
            starts = self._children[tier].starts
            begin = starts[domains]
            width = starts[domains + 1] - begin
            of = np.append(0, width.cumsum())
            below = np.arange(of[-1]) + np.repeat(begin - of[:-1], width)
            tier += 1
            counts = divide(self._rules[tier], self._caps[tier][below], of, sizes)
            if counts is None:
                return None
            used = np.flatnonzero(counts)
            domains, sizes = below[used], counts[used]
            cost += self._cost_of(tier, sizes, np.searchsorted(used, of[:-1]))
        return _Found(Division(domains, sizes, self._members), cost)

    # -- costs: integers in which the terms of upper levels weigh more than all of those below

    def _cost_of(self, tier: int, sizes: Int64, starts: Int64) -> int:
        """`starts`: where the domains within each one above begin."""
        rule = self._rules[tier]
        if rule.shape is Shape.PACK:
            return self._cost(tier, len(sizes), 0)
        squares = int((sizes * sizes).sum())
        if rule.shape is Shape.SPREAD:
            return self._cost(tier, 0, squares)
        parts = np.diff(np.append(starts, len(sizes)))
        return self._cost(tier, int(np.abs(parts - rule.parts).sum()), squares)

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
        below, within = tier + 1, self._children[tier].starts[first : last + 1]
        children = slice(int(within[0]), int(within[-1]))
        rule, caps = self._rules[below], self._caps[below][children]
        within = within - within[0]
        starts = within[:-1]
        width, shift = self._widths[below]
        if not width or shift + width <= self._dropped:
            return np.zeros(len(starts), np.int64)
        if rule.shape is Shape.PACK:
            one = np.zeros(len(caps), np.int64) if below == self._last else self._bounds_below(below)[children]
            one = np.where(caps >= self._members, one + self._shifted(1, shift), _WORST)
            best: Int64 = np.minimum.reduceat(one, starts)
            if (best == _WORST).any():
                if len(caps) <= _MOST_COUNTED:
                    several = fewest(caps, within, self._members)
                else:
                    several = -(-self._members // np.maximum(np.maximum.reduceat(caps, starts), 1))
                best = np.where(best < _WORST, best, self._shifted(several, shift))
            return best
        usable = np.add.reduceat((caps > 0).astype(np.int64), starts)
        usable = np.minimum(usable, self._members // rule.least)
        parts = np.maximum(usable if rule.shape is Shape.SPREAD else np.minimum(usable, rule.parts), 1)
        each, more = np.divmod(self._members, parts)
        squares = parts * each * each + more * (2 * each + 1)
        if rule.shape is Shape.PARTITION:
            squares += (rule.parts - parts) << 2 * self._bits + 1
        return self._shifted(squares, shift)

    def _shifted(self, term: Int64 | int, shift: int) -> Int64:
        by = shift - self._dropped
        return np.left_shift(term, by) if by >= 0 else np.right_shift(term, -by)


def _width(rule: Rule, bits: int) -> int:
    if not rule.counts:
        return 0
    return {Shape.PACK: bits + 1, Shape.SPREAD: 2 * bits + 1, Shape.PARTITION: 3 * bits + 2}[rule.shape]


def _allowed(rule: Rule, caps: Int64) -> Int64:
    """The largest size that the rule's range and factor allow in each domain."""
    if rule.has_range:
        caps = np.minimum(caps, rule.most)
    if rule.has_step:
        caps = caps - caps % rule.step
    if rule.has_range and rule.least > 1:
        caps = np.where(caps >= rule.least, caps, 0)
    return caps


def _capacity(rule: Rule, caps: Int64, starts: Int64, wanted: int) -> Int64:
    """A bound on the members that a rule lets into each domain, by what those below it can take."""
    if not rule.shape_is_hard:
        held: Int64 = np.add.reduceat(caps, starts[:-1])
    elif rule.shape is Shape.PACK:
        held = np.maximum.reduceat(caps, starts[:-1])
    else:
        held = most_even(caps, starts, rule.parts, int(rule.step == 1))
    return np.minimum(held, wanted)
