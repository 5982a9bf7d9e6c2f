"""What it costs to give domains so many members, as one whole number whose high bits count first: smaller is better.

Soft constraints are given up from the last: what is worth more has the higher bits, and no sum of what is worth less
ever reaches them. Sums over domains of such numbers therefore compare as what they stand for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.shapes.rules import UNBOUNDED, Rule, Shape

NEVER: Final = 2**61
"""The price of what cannot be, or must not; two of them can still be added."""
_BITS: Final = 60
_FITS_BITS: Final = 6
"""Domains are told apart by how much room they have, in so many bits."""


class Term(IntEnum):
    """What is counted, in the order of its worth on one level."""

    RANGE = 0
    FACTOR = 1
    PARTS = 2
    SHAPE = 3
    WISHES = 4
    FIT = 5


_Key = tuple[int, int, Term]
"""Gang, level and term."""
_WISHES: Final = (-1, -1, Term.WISHES)
LARGEST_DISLIKE: Final = 15
"""Of a member for its node, from 0."""


@dataclass(frozen=True)
class Shares:
    """One gang: how many members it may have in all, those placed included, and its rules from the top down."""

    most: int
    rules: Sequence[Rule]


class Prices:
    """Where each term of each rule has its bits. What is worth least is left out if there are too many.

    `unfinished`: more members will come, so that of what is hard only that is refused which they could not mend.
    """

    def __init__(self, gangs: Sequence[Shares], *, unfinished: bool = False) -> None:
        self._gangs = gangs
        self._unfinished = unfinished
        self._shift: dict[_Key, int] = {}
        members = sum(gang.most for gang in gangs)
        left = _BITS - members.bit_length()
        self.outside = left
        """Bits to shift the number of members outside of trees."""
        self.wishes: int | None = None
        """Bits to shift how much members dislike their nodes; None if there is no place for that."""
        for key, bound in self._terms():
            bits = bound.bit_length()
            if bits > left:
                continue
            left -= bits
            self._shift[key] = left
        self.wishes = self._shift.get(_WISHES)
        self.ties = left if self.wishes is None else self.wishes + (members * LARGEST_DISLIKE).bit_length()
        """Bits of what nobody asked for."""

    def of_sizes(self, gang: int, rule: Rule) -> Int64:
        """The price of a domain by how many members it has: int64[most + 1]."""
        sizes = np.arange(self._gangs[gang].most + 1)
        missed = np.maximum(rule.least - sizes, 0) + np.maximum(sizes - rule.most, 0)
        uneven = (sizes % rule.step != 0).astype(np.int64)
        prices: Int64 = self._priced(gang, rule, Term.RANGE, missed) + self._priced(gang, rule, Term.FACTOR, uneven)
        shape = np.ones_like(sizes) if rule.shape is Shape.PACK else sizes * sizes
        prices += self._priced(gang, rule, Term.SHAPE, shape)
        if rule.range_is_hard:
            prices[sizes > rule.most if self._unfinished else missed > 0] = NEVER
        if rule.step_is_hard and not self._unfinished:
            prices[uneven > 0] = NEVER
        prices[0] = 0
        return prices

    def of_parts(self, gang: int, rule: Rule, most: int) -> Int64:
        """The price of how many domains one above has its members in: int64[most + 1]."""
        parts = np.arange(most + 1)
        if rule.shape is not Shape.PARTITION:
            return np.zeros(most + 1, np.int64)
        prices = self._priced(gang, rule, Term.PARTS, np.abs(parts - rule.parts))
        if rule.shape_is_hard:
            prices[parts > rule.parts if self._unfinished else parts != rule.parts] = NEVER
        prices[0] = 0
        return prices

    def of_fit(self, gang: int, rule: Rule, room: Int64) -> Int64:
        """The price of using each domain, the one with the least room first: `room` is int64[domains]."""
        if rule.shape is Shape.SPREAD or not len(room):
            return np.zeros(len(room), np.int64)
        _, ranks = np.unique(room, return_inverse=True)
        return self._priced(gang, rule, Term.FIT, (ranks.astype(np.int64) << _FITS_BITS) // (int(ranks.max()) + 1))

    def _priced(self, gang: int, rule: Rule, term: Term, counts: Int64) -> Int64:
        shift = self._shift.get((gang, rule.level, term))
        return np.zeros_like(counts) if shift is None else counts << shift

    def _terms(self) -> list[tuple[_Key, int]]:
        """Keys and the largest sums there can be, by worth: what was asked for, wishes, best fit, the rest."""
        asked: list[tuple[_Key, int]] = []
        fit: list[tuple[_Key, int]] = []
        unasked: list[tuple[_Key, int]] = []
        for index, gang in enumerate(self._gangs):
            most = gang.most
            for rule in gang.rules:
                if rule.has_range and not rule.range_is_hard:
                    short = min(rule.least, UNBOUNDED) - 1
                    asked.append(((index, rule.level, Term.RANGE), most * max(short, 1)))
                if rule.has_step and not rule.step_is_hard:
                    asked.append(((index, rule.level, Term.FACTOR), most))
                if rule.shape is Shape.PARTITION and not rule.shape_is_hard:
                    asked.append(((index, rule.level, Term.PARTS), most * max(rule.parts, 1)))
                shape = most if rule.shape is Shape.PACK else most * most
                (asked if rule.counts else unasked).append(((index, rule.level, Term.SHAPE), shape))
                if rule.shape is not Shape.SPREAD:
                    (fit if rule.counts else unasked).append(((index, rule.level, Term.FIT), most << _FITS_BITS))
        members = sum(gang.most for gang in self._gangs)
        return [*asked, (_WISHES, members * LARGEST_DISLIKE), *fit, *unasked]
