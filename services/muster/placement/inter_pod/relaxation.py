"""What members that mind other pods could ask less of, so that they would have a place."""

from collections.abc import Sequence

import numpy as np

from muster.placement.inter_pod.rules import Rule
from muster.placement.state.capacity import ClassCapacity


def one_each(of_class: ClassCapacity) -> bool:
    """No node takes two members, however large it is."""
    limits = of_class.inter_pod
    return limits is not None and (bool(limits.ports) or any(rule.itself for rule in limits.keep_away))


def ask_less(of_class: ClassCapacity, missing: int) -> str:
    """Which of the rules among pods to give up so that `missing` more members fit, as what follows on "it would fit";
    "" if no single one would do.
    """
    limits = of_class.inter_pod
    if limits is None or np.minimum(of_class.alone, limits.caps()).sum() >= missing:
        return ""
    own = [rule for rule in limits.keep_away if rule.own]
    others = [rule for rule in limits.keep_away if not rule.own and not rule.itself]
    kinds: list[tuple[Sequence[Rule], str]] = [
        (limits.spread, "its topology spread constraints were ScheduleAnyway"),
        (
            [*own, *(rule for rule in limits.keep_away if rule.itself)],
            "its pod anti-affinity were preferred, not required",
        ),
        (limits.together, "its pod affinity were preferred, not required"),
        (limits.ports, "its pods asked for no host ports"),
        (others, "other pods' anti-affinity did not keep it away"),
    ]
    for rules, change in kinds:
        if rules and _fits_without(of_class, rules, missing):
            return f"if {change}"
    return ""


def _fits_without(of_class: ClassCapacity, left_out: Sequence[Rule], missing: int) -> bool:
    """Members fit where the other rules let them go, as far as these do not change with members that are placed."""
    limits = of_class.inter_pod
    assert limits is not None, "what minds nobody has no rules"
    if any(rule.members_interact() for rule in limits.rules if rule not in left_out):
        return False
    return int(np.minimum(of_class.alone, limits.caps_without(left_out)).sum()) >= missing
