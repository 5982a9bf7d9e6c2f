"""Parses Koordinator's network topology spec: the layers in which a gang's pods should be in one domain.

    {"gatherStrategy": [{"layer": "SpineLayer", "strategy": "PreferGather"},
                        {"layer": "BlockLayer", "strategy": "MustGather"}]}

A layer is the level of the same name in the gang's topology tree; NodeTopologyLayer is the level of the nodes. A
preferred layer has no effect if the tree does not have it.
"""

from collections.abc import Mapping
from typing import Any, Final

from muster.dialects.values import BadValue, quoted_value
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.json_text import BadJson, decode_json
from muster.gangs.quoting import quoted
from muster.topology.constraints import is_level_name
from muster.topology.trees import MAX_LEVELS, NODE_LEVEL

_NODE_LAYER: Final = "NodeTopologyLayer"
_HARD: Final = {"PreferGather": False, "MustGather": True}
_FORM: Final = '{"gatherStrategy": [{"layer": ..., "strategy": ...}]}'


def parse_network_topology(text: Any) -> tuple[LevelConstraint, ...]:
    """Parses the annotation into one pack constraint per layer. Raises BadValue."""
    try:
        spec = decode_json(text)
    except BadJson:
        spec = None
    listed = spec.get("gatherStrategy") if isinstance(spec, Mapping) else None
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        raise BadValue(f"{quoted(text)}, which is not of the form {_FORM}")
    if len(listed) > MAX_LEVELS:
        raise BadValue(f"a list of {len(listed)} layers, but there are at most {MAX_LEVELS}")
    packs = [_pack(each) for each in listed]
    levels = [each.level for each in packs]
    duplicate = next((level for level in levels if levels.count(level) > 1), None)
    if duplicate is not None:
        raise BadValue(f"a list with layer {quoted(duplicate)} in it twice")
    return tuple(packs)


def _pack(strategy: Mapping[str, Any]) -> LevelConstraint:
    layer, name = strategy.get("layer"), strategy.get("strategy")
    if not isinstance(layer, str) or not is_level_name(layer):
        raise BadValue(f"a list with layer {quoted_value(layer)} in it, which no topology tree can have")
    hard = _HARD.get(name) if isinstance(name, str) else None
    if hard is None:
        raise BadValue(f"a list with strategy {quoted_value(name)} in it, which is neither PreferGather nor MustGather")
    level = NODE_LEVEL if layer == _NODE_LAYER else layer
    return LevelConstraint(level, LevelPolicy.PACK, hard=hard, optional=not hard)
