"""Proofs by counting for members of several classes of which a domain takes one: one per node of them all, say."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from typing import Final

import numpy as np

from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.rules import AntiAffinityRule, HostPortsRule
from muster.placement.solve.instance import Part
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool

_MAX_CLASSES: Final = 8
"""Of which all sets are looked at; of more, only all of them at once."""


def too_few_domains(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> bool:
    """Proved that there are fewer domains than members that need one each."""
    limits = {part.class_id: each for part in parts if (each := state.of(part.class_id).inter_pod) is not None}
    keys = sorted({rule.key for each in limits.values() for rule in _excluding(each)})
    return any(_too_few(state, group, parts, limits, key) for key in keys)


def _too_few(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], limits: dict[str, InterPodRules], key: str
) -> bool:
    class_ids = _one_for_all(state, limits, key)
    usable = {class_id: np.minimum(state.of(class_id).alone, limits[class_id].caps_at_best()) for class_id in class_ids}
    codes = state.nodes.domains(key).codes if key else np.arange(state.nodes.rows) + 1
    for chosen in _sets(class_ids):
        seats = np.sum([usable[class_id] for class_id in chosen], axis=0)
        rows: Bool = seats > 0
        domains = len(np.unique(codes[rows & (codes > 0)])) + int(seats[codes == 0].sum())
        if _must_seat(group, parts, chosen) > domains:
            return True
    return False


def _excluding(limits: InterPodRules) -> list[HostPortsRule | AntiAffinityRule]:
    """Rules under which members of the class keep one another away."""
    return [*limits.ports, *(rule for rule in limits.keep_away if rule.itself)]


def _one_for_all(state: CapacityState, limits: dict[str, InterPodRules], key: str) -> list[str]:
    """Classes of which a domain takes one member in all: each keeps itself away, and all those before it."""
    found: list[str] = []
    for class_id, each in sorted(limits.items()):
        kept_away = set(chain.from_iterable(rule.tally.classes for rule in _excluding(each) if rule.key == key))
        if {state.capacity.classes[other] for other in (*found, class_id)} <= kept_away:
            found.append(class_id)
    return found


def _sets(class_ids: Sequence[str]) -> Iterable[tuple[str, ...]]:
    if len(class_ids) > _MAX_CLASSES:
        return [tuple(class_ids)]
    return chain.from_iterable(combinations(class_ids, size) for size in range(1, len(class_ids) + 1))


def _must_seat(group: SolveGroup, parts: Sequence[Part], class_ids: Sequence[str]) -> int:
    """How many members of these classes must have a place even if all others had one."""
    must = 0
    for index, gang in enumerate(group.gangs):
        others = sum(part.wanted for part in parts if part.gang == index and part.class_id not in class_ids)
        must += max(0, gang.minimum - others)
    return must
