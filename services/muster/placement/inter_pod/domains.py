"""Parts of the cluster to which a group whose members mind one another is confined, one after another, to find a place.

Members that want to be together, with nobody there yet, need a domain to be in; constraints of a gang may want one too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.instance import Part
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool

Region = Bool | None
"""Rows that may be used, bool[rows]; None: all."""


@dataclass(frozen=True)
class RankedDomains:
    """Disjoint regions: `of` is int64[rows], the region of each row, -1 where there is none; `order` the best first."""

    of: Int64
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Bool]:
        for region in self.order.tolist():
            yield self.of == region


def common_domains(state: CapacityState, parts: Sequence[Part], within: Region = None) -> RankedDomains | None:
    """Domains for members that want to be together and have nobody to be with yet; None: no member does."""
    keys = sorted({key for part in parts for key in unsettled_keys(state, part)})
    if not keys:
        return None
    of: Int64 = np.zeros(state.nodes.rows, np.int64)
    labelled = np.ones(state.nodes.rows, np.bool_) if within is None else within
    for key in keys:
        codes = state.nodes.domains(key).codes
        of = np.unique(of * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1].reshape(-1)
        labelled = labelled & (codes > 0)
    return ranked(state, parts, np.where(labelled, of, -1))


def ranked(state: CapacityState, parts: Sequence[Part], of: Int64) -> RankedDomains:
    """RankedDomains that have room for any member: those for most members first, then the smallest, then by name."""
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


def unsettled_keys(state: CapacityState, part: Part) -> tuple[str, ...]:
    """Labels of the domain that members of a part have yet to choose to be in together."""
    limits = state.of(part.class_id).inter_pod
    if limits is None:
        return ()
    return tuple(key for rule in limits.together if rule.members_interact() for key in rule.keys)
