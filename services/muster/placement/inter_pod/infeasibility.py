"""Proves by counting that the members of an interacting group cannot all be placed."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.domains import affinity_domains
from muster.placement.inter_pod.rules import AntiAffinityRule, HostPortsRule, Rule
from muster.placement.inter_pod.water_filling import max_members
from muster.placement.solve.instance import Part, is_homogeneous
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool

_MAX_DOMAINS_COUNTED: Final = 256
"""Affinity domains that are counted one by one."""
_MAX_CLASSES_COMBINED: Final = 8
"""Classes of which all combinations are examined; of more classes, only all of them together."""


def is_infeasible(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> bool:
    """Proved: not all gangs can reach their minimums."""
    seats = {part.class_id: _max_members(state, parts, part) for part in parts}
    if is_homogeneous(parts):
        return sum(gang.minimum for gang in group.gangs) > seats[parts[0].class_id]
    return _too_few_domains(state, group, parts) or any(
        sum(min(part.wanted, seats[part.class_id]) for part in parts if part.gang == index) < gang.minimum
        for index, gang in enumerate(group.gangs)
    )


def _max_members(state: CapacityState, parts: Sequence[Part], part: Part) -> int:
    """Upper bound on the members of the part's class that can be placed."""
    of_class = state.of(part.class_id)
    if not is_homogeneous(parts):
        return int(_fits_upper_bound(state, parts, part.class_id).sum())
    domains = affinity_domains(state, parts)
    if domains is None:
        return max_members(of_class, None)
    if len(domains) > _MAX_DOMAINS_COUNTED:
        return int(of_class.alone.sum())
    return max((max_members(of_class, domain) for domain in domains), default=0)


def _fits_upper_bound(state: CapacityState, parts: Sequence[Part], class_id: str) -> Int64:
    """Members that fit on each node if rules are ignored that other members of the group can satisfy: int64[rows]."""
    of_class = state.of(class_id)
    if of_class.inter_pod is None:
        return of_class.alone
    group = {state.of(part.class_id).kind for part in parts}
    satisfiable: list[Rule] = [*of_class.inter_pod.spread, *of_class.inter_pod.affinity]
    ignored = [rule for rule in satisfiable if rule.matching.counts_any(group)]
    return np.minimum(of_class.alone, of_class.inter_pod.caps_without(ignored))


def _too_few_domains(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> bool:
    """Proved: there are fewer domains than members that each need a domain of their own."""
    rules = {part.class_id: each for part in parts if (each := state.of(part.class_id).inter_pod) is not None}
    keys = sorted({rule.key for each in rules.values() for rule in _self_excluding(each)})
    return any(_too_few_domains_of(state, group, parts, rules, key) for key in keys)


def _too_few_domains_of(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], rules: dict[str, InterPodRules], key: str
) -> bool:
    class_ids = _mutually_exclusive(state, rules, key)
    usable = {
        class_id: np.minimum(state.of(class_id).alone, rules[class_id].caps_upper_bound()) for class_id in class_ids
    }
    codes = state.nodes.domains(key).codes if key else np.arange(state.nodes.rows) + 1
    for chosen in _combinations(class_ids):
        seats = np.sum([usable[class_id] for class_id in chosen], axis=0)
        rows: Bool = seats > 0
        domains = len(np.unique(codes[rows & (codes > 0)])) + int(seats[codes == 0].sum())
        if _required_members(group, parts, chosen) > domains:
            return True
    return False


def _self_excluding(rules: InterPodRules) -> list[HostPortsRule | AntiAffinityRule]:
    """Rules by which a member of the class excludes other members from its domain."""
    return [*rules.host_ports, *(rule for rule in rules.anti_affinity if rule.counts_own_class)]


def _mutually_exclusive(state: CapacityState, rules: dict[str, InterPodRules], key: str) -> list[str]:
    """Classes of which a domain accepts one member in total: each excludes itself and all classes listed before it."""
    found: list[str] = []
    for class_id, each in sorted(rules.items()):
        excluding = [rule.matching for rule in _self_excluding(each) if rule.key == key]
        kinds = [state.of(other).kind for other in (*found, class_id)]
        if all(any(excluded.counts(kind) for excluded in excluding) for kind in kinds):
            found.append(class_id)
    return found


def _combinations(class_ids: Sequence[str]) -> Iterable[tuple[str, ...]]:
    if len(class_ids) > _MAX_CLASSES_COMBINED:
        return [tuple(class_ids)]
    return chain.from_iterable(combinations(class_ids, size) for size in range(1, len(class_ids) + 1))


def _required_members(group: SolveGroup, parts: Sequence[Part], class_ids: Sequence[str]) -> int:
    """Members of these classes that are needed for the minimums even if all other members are placed."""
    required = 0
    for index, gang in enumerate(group.gangs):
        others = sum(part.wanted for part in parts if part.gang == index and part.class_id not in class_ids)
        required += max(0, gang.minimum - others)
    return required
