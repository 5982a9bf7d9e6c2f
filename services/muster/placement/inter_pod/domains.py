"""Topology domains to which a group is confined, one after another, while its members are seated.

Members with affinity to one another and no matching pod yet need one common domain; topology constraints may need one
too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.instance import Part
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool

AllowedRows = Bool | None
"""Rows of the nodes that may be used, bool[rows]; None: all."""


@dataclass(frozen=True)
class RankedDomains:
    """Disjoint domains, iterated as row masks. `of` is int64[rows], the domain of each row, -1 for none; `order` lists
    domains, the most promising first.
    """

    of: Int64
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Bool]:
        for domain in self.order.tolist():
            yield self.of == domain


def affinity_domains(state: CapacityState, parts: Sequence[Part], allowed: AllowedRows = None) -> RankedDomains | None:
    """Domains in which all members with affinity to one another can be placed; None if no domain has to be chosen."""
    keys = sorted({key for part in parts for key in open_affinity_keys(state, part)})
    if not keys:
        return None
    of: Int64 = np.zeros(state.nodes.rows, np.int64)
    labelled = np.ones(state.nodes.rows, np.bool_) if allowed is None else allowed
    for key in keys:
        codes = state.nodes.domains(key).codes
        of = np.unique(of * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1].reshape(-1)
        labelled = labelled & (codes > 0)
    return ranked(state, parts, np.where(labelled, of, -1))


def ranked(state: CapacityState, parts: Sequence[Part], of: Int64) -> RankedDomains:
    """Domains in which any member fits: most members first, then fewest free seats, then by node name."""
    count = int(of.max(initial=-1)) + 1
    members, seats = np.zeros(count, np.int64), np.zeros(count, np.int64)
    inside = of >= 0
    for part in parts:
        fits = np.minimum(state.of(part.class_id).fits, part.wanted)
        here = np.bincount(of[inside], fits[inside], count).astype(np.int64)
        members += np.minimum(here, part.wanted)
        seats += here
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, of[inside], state.nodes.rank[inside])
    order = np.lexsort((first, seats, -members))
    return RankedDomains(of, order[members[order] > 0])


def open_affinity_keys(state: CapacityState, part: Part) -> tuple[str, ...]:
    """Topology keys of affinity among members of the part for which no domain is chosen yet."""
    rules = state.of(part.class_id).inter_pod
    if rules is None:
        return ()
    return tuple(key for rule in rules.affinity if rule.members_interact() for key in rule.keys)
