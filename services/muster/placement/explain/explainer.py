"""Infeasibility explanations: members that fit, missing resources, filtered nodes, and the smallest change that would
help.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from muster.gangs import counted_resources
from muster.gangs.capacity import NOT_OFFERED, Int64
from muster.gangs.facts import PODS, Amounts, split_kind
from muster.gangs.quoting import quoted
from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.inter_pod.rules import Filtered
from muster.placement.solve.instance import Part, Solution, reserve_again
from muster.placement.state.capacity import NO_NOMINATIONS, CapacityState, NominatedAmounts
from muster.placement.state.class_capacity import MAX_FITS, ClassCapacity
from muster.placement.state.filters import ABSENT, USABLE

MAX_REASONS: Final = 8
"""Reasons named in the sentence; taints with a value per node would make it endless. `filtered_nodes` has all of them.
"""

FilteredNodes = tuple[tuple[str, int], ...]
"""Reasons and the number of nodes filtered by each, largest first."""

IT_WOULD_FIT: Final = "it would fit"
_NODES_TOO_SMALL: Final = "no usable node is large enough for one member, even when empty"
_MOST_LACKED: Final = 3
"""Resources that no node has and that an explanation names."""
_MAX_INT64: Final = 2**63 - 1
_CHECKED_FIRST: Final = (PODS, "cpu", "memory", "ephemeral-storage")


class Explainer:
    """Explanations for one batch; groups with the same request in the same state share the work. Filtered nodes are
    known for at most as many classes and states as the batch explains.
    """

    def __init__(self, state: CapacityState, nominated: NominatedAmounts = NO_NOMINATIONS) -> None:
        self._state = state
        self._nominated = nominated
        self._filtered: dict[tuple[str, int], tuple[FilteredNodes, int]] = {}

    def lacking_part(
        self, group: SolveGroup, parts: Sequence[Part], gang_index: int, part_index: int, best: Solution
    ) -> Explanation:
        """For heterogeneous groups: explains the part that lacks members after placing the best solution."""
        state = self._state
        fit, needed = best.of_gang(parts, gang_index), group.gangs[gang_index].minimum
        checkpoint = state.checkpoint()
        reserve_again(state, parts, best)
        try:
            of_class = state.of(parts[part_index].class_id)
            missing = min(parts[part_index].wanted - best.placed[part_index], max(1, needed - fit))
            lacking = sum(max(0, gang.minimum - best.of_gang(parts, at)) for at, gang in enumerate(group.gangs))
            is_all = lacking <= missing and not any(each.hard for gang in group.gangs for each in gang.constraints)
            return self._explanation(group, gang_index, of_class, of_class.fits, fit, missing, is_all=is_all)
        finally:
            state.rollback(checkpoint)

    def at_capacity(self, group: SolveGroup, gang_index: int, class_id: str, fit: int, *, is_all: bool) -> Explanation:
        """With as many members of the class on every node as fit. `is_all`: capacity for the missing members would
        start the group.
        """
        state, of_class = self._state, self._state.of(class_id)
        needed, fits = group.gangs[gang_index].minimum, of_class.fits
        if of_class.inter_pod is None:
            return self._explanation(group, gang_index, of_class, fits, fit, needed - fit, is_all=is_all)
        checkpoint, rows = state.checkpoint(), np.flatnonzero(fits)
        state.reserve(of_class, rows, fits[rows])  # members may exclude others and occupy host ports
        try:
            none = np.zeros_like(fits)
            return self._explanation(group, gang_index, of_class, none, fit, needed - fit, is_all=is_all)
        finally:
            state.rollback(checkpoint)

    def _explanation(
        self,
        group: SolveGroup,
        gang_index: int,
        of_class: ClassCapacity,
        seated: Int64,
        fit: int,
        missing: int,
        *,
        is_all: bool,
    ) -> Explanation:
        left = _left(self._state, of_class, seated)
        filtered, nominated = self._filtered_nodes(of_class, left)
        short_by = self._short_by(of_class, left, missing)
        gang = group.gangs[gang_index]
        needed = gang.minimum
        summary = _sentence(fit, needed, missing, len(self._state.nodes), filtered, short_by)
        if nominated:
            summary += f"; capacity is nominated for others on {nominated} node{'s' if nominated != 1 else ''}"
        remedy = smallest_change(self._state, of_class, missing, is_all=is_all) if missing > 0 else ""
        return Explanation(summary, gang.id, of_class.pod_class.id, fit, needed, filtered, short_by, remedy=remedy)

    def _filtered_nodes(self, of_class: ClassCapacity, left: Int64) -> tuple[FilteredNodes, int]:
        """Nodes by filter, and the number of nodes filtered by nominated capacity alone."""
        key = (of_class.pod_class.id, self._state.clock)
        filtered = self._filtered.get(key)
        if filtered is None:
            filtered = _filtered_nodes(self._state, of_class, left), self._nominated.blocked_nodes(of_class, left)
            self._filtered[key] = filtered
        return filtered

    def _short_by(self, of_class: ClassCapacity, left: Int64, missing: int) -> Amounts:
        """Lower bounds on what `missing` more members need beyond what is free.

        Per resource, and at least what the closest node lacks for the next member.
        """
        by_name = self._state.nodes.order
        usable = by_name[of_class.filters.reason[by_name] == USABLE]
        if not len(usable):
            return ()
        left = np.maximum(left[:, usable], 0)
        lacking = np.maximum(of_class.amounts[:, None] - left, 0)
        closest = lacking[:, int((lacking / of_class.amounts[:, None]).sum(axis=0).argmin())].tolist()
        capacity = self._state.capacity
        names = {column: name for name, column in capacity.resources.items()}
        lacked = islice(_lacking(self._state, of_class).items(), _MOST_LACKED)
        short = [(name, min(amount * missing, _MAX_INT64)) for name, amount in lacked]
        for index, column in enumerate(of_class.columns.tolist()):
            if names[column] == NOT_OFFERED:
                continue
            amount = max(closest[index], _short_alone(left[index], int(of_class.amounts[index]), missing))
            if amount:
                short.append((names[column], min(amount, _MAX_INT64)))
        return tuple(sorted(short))


def _lacking(state: CapacityState, of_class: ClassCapacity) -> Mapping[str, int]:
    """Resources that the class requests and no node has, with the amounts, by name."""
    return dict(sorted(state.capacity.lacking(split_kind(of_class.pod_class.id)[0]).items()))


def _in_words(resources: Collection[str]) -> str:
    """The first of the names, and how many more there are."""
    more = len(resources) - _MOST_LACKED
    return ", ".join(islice(resources, _MOST_LACKED)) + (f" and {more} more" if more > 0 else "")


def _left(state: CapacityState, of_class: ClassCapacity, seated: Int64) -> Int64:
    """Free amounts of the class's resources after placing `seated` members: int64[its resources, rows]."""
    left: Int64 = state.free[of_class.columns] - of_class.amounts[:, None] * seated
    return left


def _filtered_nodes(state: CapacityState, of_class: ClassCapacity, left: Int64) -> FilteredNodes:
    filters = of_class.filters
    after_resources = filters.after_resources
    counts: dict[str, int] = {}
    for code, nodes in zip(*np.unique(filters.reason, return_counts=True), strict=True):
        if code not in (ABSENT, USABLE, *after_resources):
            counts[filters.reasons[code]] = int(nodes)
    undecided = np.flatnonzero(np.isin(filters.reason, (USABLE, *after_resources)))
    if of_class.inter_pod is not None:
        undecided = _count_filtered(counts, undecided, of_class.inter_pod.filtered_before_resources())
    names = {column: name for name, column in state.capacity.resources.items()}
    if lacked := _lacking(state, of_class):
        names[state.capacity.resources[NOT_OFFERED]] = _in_words(lacked)
    requested = [(names[column], index) for index, column in enumerate(of_class.columns.tolist())]
    for name, index in sorted(requested, key=_check_order):
        short = left[index, undecided] < of_class.amounts[index]
        if short.any():
            counts[_shortage(name)] = int(short.sum())
            undecided = undecided[~short]
    undecided = _count_filtered(
        counts, undecided, [(filters.reasons[code], filters.reason == code) for code in after_resources]
    )
    if of_class.inter_pod is not None:
        _count_filtered(counts, undecided, of_class.inter_pod.filtered_after_resources())
    return tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _shortage(resource: str) -> str:
    """Why a node is filtered out; `resource`: names of several if no node has them."""
    if resource == PODS:
        return "Too many pods"
    if "," in resource:
        return f"Insufficient {resource}"
    return counted_resources.filter_reason(resource) or f"Insufficient {resource}"


def _count_filtered(counts: dict[str, int], undecided: Int64, filtered: Filtered) -> Int64:
    """Counts each undecided row under the first reason that applies; returns the rows that stay undecided."""
    for reason, rows in filtered:
        here = rows[undecided]
        if here.any():
            counts[reason] = counts.get(reason, 0) + int(here.sum())
            undecided = undecided[~here]
    return undecided


def _check_order(requested: tuple[str, int]) -> tuple[int, str]:
    name = requested[0]
    return (_CHECKED_FIRST.index(name) if name in _CHECKED_FIRST else len(_CHECKED_FIRST), name)


def _short_alone(left: Int64, amount: int, missing: int) -> int:
    """The smallest amount to add to some nodes so that `missing` members get `amount` each."""
    fits = int(np.minimum(left // amount, MAX_FITS).sum())
    if fits >= missing:
        return 0
    to_fill = missing - fits
    remainders = np.sort(left % amount)[::-1][:to_fill]
    return amount * to_fill - int(remainders.sum())


def _sentence(fit: int, needed: int, missing: int, nodes: int, filtered: FilteredNodes, short_by: Amounts) -> str:
    """`missing`: members that `short_by` is for, of one role."""
    reasons = [f"{count} {reason}" for reason, count in filtered[:MAX_REASONS]]
    if len(filtered) > MAX_REASONS:
        reasons.append(f"{sum(count for _, count in filtered[MAX_REASONS:])} for other reasons")
    available = (
        f"0/{nodes} nodes are available: {', '.join(reasons)}" if nodes else "no nodes available to schedule pods"
    )
    short = " and ".join(in_words(name, amount) for name, amount in short_by)
    if needed == 1:
        return available + (f"; short of {short}" if short else "")
    sentence = f"{fit} of {needed} members fit"
    if short:
        others = "the others" if missing >= needed - fit else f"{missing} of the others"
        sentence += f"; short of {short} for {'the next' if needed - fit == 1 else others}"
    return f"{sentence}; {available}"


def in_words(resource: str, amount: int) -> str:
    """An amount in words: "1.5 cpu", "512Mi memory", "2 nvidia.com/gpu"."""
    if resource == "cpu":
        return f"{amount / 1000:g} cpu"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for shift, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
            if amount >= 1 << shift:
                return f"{round(amount / (1 << shift), 2):g}{unit} {resource}"
        return f"{amount} bytes of {resource}"
    if resource == PODS:
        return f"{amount} pod slot{'s' if amount != 1 else ''}"
    return counted_resources.in_words(resource, amount) or f"{amount} {resource}"


def smallest_change(state: CapacityState, of_class: ClassCapacity, missing: int, *, is_all: bool) -> str:
    """The change that makes room for `missing` more members: filtered nodes, more nodes, or relaxed inter-pod rules.
    `is_all`: nothing else keeps the group from starting.
    """
    change = _change(state, of_class, missing)
    if not change or change == _NODES_TOO_SMALL:
        return change
    return f"{IT_WOULD_FIT if is_all else f'{missing} more of its members would fit'} {change}"


def more_nodes_in_domain(domain: str, state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    """Number of nodes that would hold `missing` more members, all in the domain, in words."""
    nodes = _more_nodes(state, of_class, missing)
    return nodes if not nodes or nodes == _NODES_TOO_SMALL else f"{IT_WOULD_FIT} {nodes}, in {domain}"


def _change(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    rules = of_class.inter_pod
    if rules is not None and (of_class.interacting or not rules.one_per_node()):
        relaxed = rules.relaxation(of_class.alone, missing)
        if relaxed or of_class.interacting:
            return relaxed
    return _on_filtered_nodes(state, of_class, missing) or _more_nodes(state, of_class, missing)


def _more_nodes(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    usable = np.flatnonzero(of_class.filters.reason == USABLE)
    if not len(usable):
        return ""
    offers = state.capacity.allocatable[usable][:, of_class.columns]
    each = (offers // of_class.amounts).min(axis=1, initial=_max_per_node(of_class, missing))
    most = int(each.max())
    if not most:
        return _NODES_TOO_SMALL
    same_size = usable[each == most]
    name = state.nodes.name(int(same_size[state.nodes.rank[same_size].argmin()]))
    nodes = -(-missing // most)
    return f'with {nodes} more node{"s" if nodes > 1 else ""} like "{name}", empty'


def _on_filtered_nodes(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    """The filtered nodes on which the members fit: those with the same filters, or else the fewest kinds of them."""
    found: list[_FilteredCapacity] = []
    for reasons, rows in of_class.filters.obstacles().items():
        free = np.maximum(state.free[of_class.columns[:, None], rows], 0)
        fits = (free // of_class.amounts[:, None]).min(axis=0, initial=_max_per_node(of_class, missing))
        if (nodes := int((fits > 0).sum())) > 0:
            found.append(_FilteredCapacity(nodes, reasons, int(fits.sum())))
    if enough := [each for each in found if each.members >= missing]:
        return f"if its pods could use {min(enough, key=lambda each: (len(each.reasons), each)).in_words()}"
    chosen: list[_FilteredCapacity] = []
    for each in sorted(found, key=lambda each: (-each.members, each)):
        chosen.append(each)
        missing -= each.members
        if missing <= 0:
            return f"if its pods could use {', and '.join(each.in_words() for each in chosen)}"
    return ""


class _FilteredCapacity(NamedTuple):
    """Nodes that the same filters reject, and how many members would fit on them."""

    nodes: int
    reasons: tuple[str, ...]
    members: int

    def in_words(self) -> str:
        these = "node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"the {these} lost to {' and '.join(quoted(reason) for reason in self.reasons)}"


def _max_per_node(of_class: ClassCapacity, missing: int) -> int:
    """Missing members that one node takes at most, however large it is."""
    one_per_node = of_class.inter_pod is not None and of_class.inter_pod.one_per_node()
    return min(missing, 1) if one_per_node else missing
