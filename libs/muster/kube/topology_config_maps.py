"""Converts ConfigMaps that define topology trees to trees; malformed ones become trees with a problem."""

from typing import Final

import msgspec
from msgspec import Struct, field

from muster.gangs.facts import ObjectReference, Problem, Severity, TopologyTree, TreeLevel
from muster.kube.objects import UNREADABLE, Encoded, ObjectMeta, salvage
from muster.kube.timestamps import BadTimestamp, parse_timestamp
from muster.topology.sakkara import DEFAULT_LEVELS, BadTree, read_tree, tree_levels, tree_name


class ConfigMap(Struct, rename="camel", frozen=True, gc=False):
    """A ConfigMap, without binaryData."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    data: dict[str, str] | None = None


_config_map: Final = msgspec.json.Decoder(ConfigMap)


def decode_config_map(data: Encoded) -> ConfigMap:
    """Decode a ConfigMap; malformed data counts as absent. Raises BadObject if it is not a JSON object."""
    try:
        return _config_map.decode(data)
    except UNREADABLE:
        return ConfigMap(**salvage(ConfigMap, data)[0])


def created_seconds(config_map: ConfigMap) -> int:
    """Creation time; 0 if absent."""
    try:
        return parse_timestamp(config_map.metadata.creation_timestamp or "")
    except BadTimestamp:
        return 0


def topology_tree(config_map: ConfigMap) -> TopologyTree:
    """The tree that a ConfigMap defines. A malformed definition gives a tree without domains, with a blocking problem.

    Such a tree has its name and levels as far as these can be read.
    """
    metadata, data = config_map.metadata, config_map.data or {}
    definition = ObjectReference("v1", "ConfigMap", metadata.namespace, metadata.name, metadata.uid)
    try:
        return read_tree(data, definition)
    except BadTree as error:
        problem = Problem(Severity.BLOCKING, str(error))
    try:
        name = tree_name(data)
    except BadTree:
        name = metadata.name
    try:
        levels = tree_levels(data)
    except BadTree:
        levels = tuple(map(TreeLevel, DEFAULT_LEVELS))
    return TopologyTree(name, levels, definition=definition, problems=(problem,))
