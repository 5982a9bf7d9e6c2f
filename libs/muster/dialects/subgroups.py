"""Parses Volcano's subGroupPolicy: divisions of a gang's members into subgroups by labels."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from muster.dialects.values import MAX_COUNT, BadValue, quoted_value
from muster.gangs.facts import LevelConstraint, SubgroupPolicy
from muster.gangs.quoting import quoted
from muster.gangs.selectors import EVERYTHING_SELECTED, LabelSelector, Operator, Requirement

POLICY_FIELDS: Final = ("name", "labelSelector", "matchLabelKeys", "subGroupSize", "minSubGroups", "networkTopology")
SELECTOR_FIELDS: Final = ("matchLabels", "matchExpressions")
MAX_POLICIES: Final = 20
MAX_MIN_SUBGROUPS: Final = 100
MAX_KEYS: Final = 8
"""Entries of matchLabelKeys."""
MAX_REQUIREMENTS: Final = 20
"""Requirements of a labelSelector, and values of one."""
MAX_LABEL_LENGTH: Final = 317
"""Characters of a label's key."""

_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}", re.ASCII)
_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}

ReadTopology = Callable[[Any], tuple[str, tuple[LevelConstraint, ...]]]
"""Parses a network topology to a tree and constraints. Raises BadValue."""


def parse_subgroups(value: Any, topology: ReadTopology) -> tuple[SubgroupPolicy, ...]:
    """Parses the list of policies. Raises BadValue."""
    if not isinstance(value, list | tuple):
        raise BadValue(f"{quoted_value(value)}, which is not a list of policies such as {{name: a, subGroupSize: 4}}")
    if len(value) > MAX_POLICIES:
        raise BadValue(f"a list of {len(value)} policies, but it must have at most {MAX_POLICIES}")
    policies = [_policy(each, topology) for each in value]
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise BadValue(f"given with two policies of the name {quoted(name)}: their subgroups would overlap")
    for at, policy in enumerate(policies):
        if policy.minimum and (first := next((each for each in policies[:at] if _selects_all(each, policy)), None)):
            both = f"policies {quoted(first.name)} and {quoted(policy.name)}, which overlap"
            taken = f"the first selects all pods of the second, whose minSubGroups is {policy.minimum}"
            raise BadValue(f"given with {both}: {taken}; give each a labelSelector of its own")
    return tuple(policies)


def _selects_all(first: SubgroupPolicy, later: SubgroupPolicy) -> bool:
    """All pods that the later policy selects are in subgroups of the first one, as far as the declarations tell."""
    wide, narrow = first.labels.requirements, later.labels.requirements
    selects = wide is not None and narrow is not None and set(wide) <= set(narrow)
    return selects and set(first.keys) <= set(later.keys)


def _policy(value: Any, topology: ReadTopology) -> SubgroupPolicy:
    name = value.get("name") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadValue(
            f"given with policy {quoted_value(value)}, which needs a name of up to 63 characters such as a-1"
        )
    in_policy = f"given with policy {quoted(name)}, whose"
    tree = ""
    constraints: tuple[LevelConstraint, ...] = ()
    if (given := value.get("networkTopology")) is not None:
        try:
            tree, constraints = topology(given)
        except BadValue as error:
            raise BadValue(f"{in_policy} networkTopology is {error}") from None
    return SubgroupPolicy(
        name,
        _selector(value.get("labelSelector"), in_policy),
        _keys(value.get("matchLabelKeys"), in_policy),
        _number(value.get("subGroupSize"), 1, (1, MAX_COUNT), f"{in_policy} subGroupSize"),
        _number(value.get("minSubGroups"), 0, (0, MAX_MIN_SUBGROUPS), f"{in_policy} minSubGroups"),
        tree,
        constraints,
    )


def _number(value: Any, default: int, limits: tuple[int, int], where: str) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not limits[0] <= value <= limits[1]:
        raise BadValue(f"{where} is {quoted_value(value)}, which is not a number from {limits[0]} to {limits[1]}")
    return value


def _keys(value: Any, in_policy: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > MAX_KEYS or not all(map(_is_key, value)):
        raise BadValue(
            f"{in_policy} matchLabelKeys are {quoted_value(value)}, which are not up to {MAX_KEYS} label keys"
        )
    return tuple(value)


def _selector(value: Any, in_policy: str) -> LabelSelector:
    """Parses a label selector; without one all pods are selected."""
    if value is None:
        return EVERYTHING_SELECTED
    given = value if isinstance(value, Mapping) else {"matchLabels": value}
    labels, expressions = given.get("matchLabels") or {}, given.get("matchExpressions") or ()
    if not isinstance(labels, Mapping) or not isinstance(expressions, list | tuple):
        raise BadValue(
            f"{in_policy} labelSelector is {quoted_value(value)}, which has neither matchLabels nor matchExpressions"
        )
    if len(labels) + len(expressions) > MAX_REQUIREMENTS:
        raise BadValue(f"{in_policy} labelSelector has more than {MAX_REQUIREMENTS} requirements")
    if not all(_is_key(key) and isinstance(label, str) for key, label in labels.items()):
        raise BadValue(f"{in_policy} labelSelector is {quoted_value(value)}, whose matchLabels are not labels")
    equal = [Requirement(key, Operator.IN, (label,)) for key, label in labels.items()]
    return EVERYTHING_SELECTED.narrowed([*equal, *(_requirement(each, in_policy) for each in expressions)])


def _requirement(value: Any, in_policy: str) -> Requirement:
    given = value if isinstance(value, Mapping) else {}
    operator, values = _OPERATORS.get(str(given.get("operator"))), given.get("values") or ()
    well_formed = (
        operator is not None
        and _is_key(given.get("key"))
        and isinstance(values, list | tuple)
        and len(values) <= MAX_REQUIREMENTS
        and all(isinstance(each, str) for each in values)
        and bool(values) == (operator in (Operator.IN, Operator.NOT_IN))
    )
    if operator is None or not well_formed:
        which = "which is no requirement such as {key: app, operator: In, values: [a]}"
        raise BadValue(f"{in_policy} labelSelector has {quoted_value(value)}, {which}")
    return Requirement(given["key"], operator, tuple(sorted(set(values))))


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_LABEL_LENGTH
