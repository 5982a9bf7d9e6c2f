"""ConfigMaps that define topology trees, off the wire: the tree, or what keeps it from being one."""

from typing import Final

import msgspec
from msgspec import Struct, field

from muster.gangs.facts import ObjectReference, Problem, Severity, TopologyTree, TreeLevel
from muster.kube.objects import UNREADABLE, Encoded, ObjectMeta, salvage
from muster.kube.timestamps import BadTimestamp, parse_timestamp
from muster.topology.sakkara import DEFAULT_LEVELS, BadTree, read_tree, tree_levels, tree_name


class ConfigMap(Struct, rename="camel", frozen=True, gc=False):
    """A ConfigMap; binaryData is of no interest."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    data: dict[str, str] | None = None


_config_map: Final = msgspec.json.Decoder(ConfigMap)


def decode_config_map(data: Encoded) -> ConfigMap:
    """Read a ConfigMap; data that is not text by name counts as none. Raises BadObject if it is no JSON object."""
    try:
        return _config_map.decode(data)
    except UNREADABLE:
        return ConfigMap(**salvage(ConfigMap, data)[0])


def created_seconds(config_map: ConfigMap) -> int:
    """When it was created; 0 if it does not say."""
    try:
        return parse_timestamp(config_map.metadata.creation_timestamp or "")
    except BadTimestamp:
        return 0


def topology_tree(config_map: ConfigMap) -> TopologyTree:
    """The tree that a ConfigMap defines. If it defines none, one without domains that says why in a blocking problem.

    Such a one has the name and the levels that it would have, as far as these can be read.
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
