"""Parses Koordinator's network topology spec: the layers in which a gang's pods should be in one domain.

    {"gatherStrategy": [{"layer": "SpineLayer", "strategy": "PreferGather"},
                        {"layer": "BlockLayer", "strategy": "MustGather", "podCountMultiple": 4}]}

A layer is the level of the same name in the gang's topology tree; NodeTopologyLayer is the level of the nodes. A
preferred layer has no effect if the tree does not have it. With podCountMultiple, each domain of the layer gets a
multiple of that many pods, whatever the strategy. A spec without rules, null included, is no constraint.
"""

from collections.abc import Mapping
from typing import Any, Final

from muster.dialects.values import MAX_COUNT, BadValue, quoted_value
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.json_text import BadJson, decode_json
from muster.gangs.quoting import quoted
from muster.topology.constraints import is_level_name
from muster.topology.trees import MAX_LEVELS, NODE_LEVEL

_NODE_LAYER: Final = "NodeTopologyLayer"
_HARD: Final = {"PreferGather": False, "MustGather": True}
_MULTIPLE: Final = "podCountMultiple"
_KEYS: Final = {"layer", "strategy", _MULTIPLE}
_FORM: Final = '{"gatherStrategy": [{"layer": ..., "strategy": ...}]}'


def parse_network_topology(text: Any) -> tuple[LevelConstraint, ...]:
    """Parses the annotation into one pack constraint per layer, and one for its podCountMultiple. Raises BadValue."""
    listed = _rules(text)
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        raise BadValue(f"{quoted(text)}, which is not of the form {_FORM}")
    if len(listed) > MAX_LEVELS:
        raise BadValue(f"a list of {len(listed)} layers, but there are at most {MAX_LEVELS}")
    packs = [_pack(each) for each in listed]
    levels = [each.level for each in packs]
    duplicate = next((level for level in levels if levels.count(level) > 1), None)
    if duplicate is not None:
        raise BadValue(f"a list with layer {quoted(duplicate)} in it twice")
    multiples = [_multiple(pack.level, rule) for pack, rule in zip(packs, listed, strict=True)]
    return (*packs, *(each for each in multiples if each is not None))


def unknown_keys(text: Any) -> list[str]:
    """Keys of a spec that have no meaning, sorted; none if it cannot be read."""
    try:
        spec = decode_json(text)
    except BadJson:
        return []
    if not isinstance(spec, Mapping):
        return []
    rules = spec.get("gatherStrategy")
    of_rules = {key for each in (rules if isinstance(rules, list) else ()) if isinstance(each, Mapping) for key in each}
    return sorted({*(spec.keys() - {"gatherStrategy"}), *(of_rules - _KEYS)})


def _rules(text: Any) -> Any:
    """The list of rules; None if the spec has another form."""
    try:
        spec = decode_json(text)
    except BadJson:
        return None
    if spec is None:
        return []
    if not isinstance(spec, Mapping):
        return None
    rules = spec.get("gatherStrategy")
    return [] if rules is None else rules


def _multiple(level: str, rule: Mapping[str, Any]) -> LevelConstraint | None:
    multiple = rule.get(_MULTIPLE)
    if multiple is None or (type(multiple) is int and multiple in (0, 1)):
        return None
    if type(multiple) is not int or not 0 < multiple <= MAX_COUNT:
        raise BadValue(f"a list with {_MULTIPLE} {quoted_value(multiple)} in it, which is not a number of pods")
    return LevelConstraint(level, LevelPolicy.FACTOR, hard=True, count=multiple)


def _pack(strategy: Mapping[str, Any]) -> LevelConstraint:
    layer, name = strategy.get("layer"), strategy.get("strategy")
    if not isinstance(layer, str) or not is_level_name(layer):
        raise BadValue(f"a list with layer {quoted_value(layer)} in it, which no topology tree can have")
    hard = _HARD.get(name) if isinstance(name, str) else None
    if hard is None:
        raise BadValue(f"a list with strategy {quoted_value(name)} in it, which is neither PreferGather nor MustGather")
    level = NODE_LEVEL if layer == _NODE_LAYER else layer
    return LevelConstraint(level, LevelPolicy.PACK, hard=hard, optional=not hard)
