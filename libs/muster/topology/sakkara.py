"""Topology trees as Sakkara's ConfigMaps define them: names of levels, and domains as nested JSON objects.

    name:            a name; "default-tree" if absent
    level-names:     JSON list of strings from the top to the nodes, without the root; ["rack", "node"] if absent
    resource-names:  JSON list of strings; ignored, since placement considers all resources that pods request
    tree:            {"rack-0": {"node-0": {}, "node-1": {}}, "rack-1": {"node-2": {}}}

Entries at the depth of the last level are nodes. An empty object above that depth is a domain without nodes.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from muster.gangs.facts import ObjectReference, TopologyTree, TreeDomain, TreeLevel
from muster.gangs.json_text import decode_json_pairs
from muster.gangs.quoting import quoted
from muster.topology.constraints import MAX_LEVEL_NAME_LENGTH, is_level_name
from muster.topology.trees import MAX_LEVELS, MAX_NAME_LENGTH

TOPOLOGY_LABEL: Final = "sakkara.topology"
"""ConfigMaps with this label, whatever its value, define trees."""

DEFAULT_NAME: Final = "default-tree"
DEFAULT_LEVELS: Final = ("rack", "node")

_NAME: Final = "name"
_LEVELS: Final = "level-names"
_RESOURCES: Final = "resource-names"
_TREE: Final = "tree"
_EXAMPLE: Final = 'e.g. {"rack-0": {"node-0": {}, "node-1": {}}}'
_LONGEST_SHOWN: Final = 512


class BadTree(ValueError):
    """The definition is not a tree. The message quotes the wrong part, says where it is and what is expected."""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its entries, including those with the same name."""


def tree_name(data: Mapping[str, str]) -> str:
    """The tree's name. Raises BadTree."""
    name = data.get(_NAME, DEFAULT_NAME).strip()
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise BadTree(f"{_NAME} is {_escaped(name)}, but a tree's name has 1 to {MAX_NAME_LENGTH} printable characters")
    return name


def tree_levels(data: Mapping[str, str]) -> tuple[TreeLevel, ...]:
    """The tree's levels. Raises BadTree."""
    names = _strings(data, _LEVELS, DEFAULT_LEVELS)
    if not 1 <= len(names) <= MAX_LEVELS:
        raise BadTree(f"{_LEVELS} has {len(names)} names, but a tree has 1 to {MAX_LEVELS} levels")
    for at, name in enumerate(names):
        if not is_level_name(name):
            raise BadTree(
                f"{_LEVELS} has {_escaped(name)}, but a level's name has 1 to {MAX_LEVEL_NAME_LENGTH} characters "
                "without colons, semicolons, commas, parentheses and line breaks"
            )
        if name in names[:at]:
            raise BadTree(f"{_LEVELS} has {quoted(name)} twice, but every level needs a name of its own")
    return tuple(TreeLevel(name) for name in names)


def read_tree(data: Mapping[str, str], definition: ObjectReference | None = None) -> TopologyTree:
    """The tree that a ConfigMap's data defines. Raises BadTree."""
    name = tree_name(data)
    levels = tree_levels(data)
    _strings(data, _RESOURCES, ())
    if _TREE not in data:
        raise BadTree(f"there is no {_TREE} in the data: add it, {_EXAMPLE}")
    reading = _Reading(levels)
    reading.read(_pairs(data[_TREE]), (), -1)
    if reading.domains and not reading.homes:
        raise BadTree(
            f"{_TREE} has no node: nodes are entries at depth {len(levels)}, because {_LEVELS} is "
            f"{json.dumps([level.name for level in levels])}, and there is none"
        )
    leaves = tuple((node, domain) for node, (domain, _) in reading.homes.items())
    return TopologyTree(name, levels, tuple(reading.domains), leaves, definition=definition)


class _Reading:
    """Domains and nodes that were read so far."""

    def __init__(self, levels: tuple[TreeLevel, ...]) -> None:
        self.domains: list[TreeDomain] = []
        self.homes: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Node -> its domain's index, and its path."""
        self._levels = levels

    def read(self, entries: _Pairs, path: tuple[str, ...], domain: int) -> None:
        """Read the entries of a domain; -1 is the root."""
        depth, lowest = len(path), len(self._levels) - 1
        taken = set[str]()
        for name, below in entries:
            here = (*path, name)
            self._check(name, below, here)
            if depth == lowest:
                self._add_node(name, below, here, domain)
                continue
            if name in taken:
                raise BadTree(f"{_TREE} has {_shown(here)} twice: give each domain an entry of its own")
            taken.add(name)
            self.domains.append(TreeDomain(name, depth, domain))
            self.read(below, here, len(self.domains) - 1)

    def _add_node(self, node: str, below: _Pairs, path: tuple[str, ...], domain: int) -> None:
        if below:
            raise BadTree(
                f"{_TREE} has {_shown((*path, below[0][0]))} below the nodes: {quoted(self._levels[-1].name)} is the "
                f"last of {_LEVELS}, so entries that deep must be {{}}"
            )
        if node in self.homes:
            both = f"as {_shown(self.homes[node][1])} and as {_shown(path)}"
            raise BadTree(f"node {quoted(node)} is in the tree twice, {both}: take one out")
        self.homes[node] = (domain, path)

    def _check(self, name: str, below: Any, path: tuple[str, ...]) -> None:
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise BadTree(f"{_TREE} has {_shown(path)}, but a name has 1 to {MAX_NAME_LENGTH} printable characters")
        if not isinstance(below, _Pairs):
            raise BadTree(
                f"{_TREE} has {quoted(json.dumps(below))} at {_shown(path)}, but there must be an object, or {{}}"
            )


def _strings(data: Mapping[str, str], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if key not in data:
        return default
    value = _decoded(key, data[key], "a JSON list of strings")
    if not isinstance(value, list) or isinstance(value, _Pairs) or not all(isinstance(each, str) for each in value):
        raise BadTree(
            f'{key} is {quoted(data[key].strip())}, which is not a JSON list of strings, e.g. ["rack", "node"]'
        )
    return tuple(value)


def _pairs(text: str) -> _Pairs:
    value = _decoded(_TREE, text, "nested JSON objects")
    if not isinstance(value, _Pairs):
        raise BadTree(f"{_TREE} is {quoted(text.strip())}, which is not a JSON object, {_EXAMPLE}")
    return value


def _decoded(key: str, text: str, form: str) -> Any:
    try:
        return decode_json_pairs(text, _Pairs)
    except json.JSONDecodeError as error:
        around = quoted(text[max(0, error.pos - 20) : error.pos + 20].strip())
        where = f"line {error.lineno}, column {error.colno}, near {around}"
        raise BadTree(f"{key} is not {form}: {error.msg} at {where}") from error
    except ValueError as error:  # nested too deeply, or a number beyond all bounds
        raise BadTree(f"{key} is not {form}: {error}") from error


def _shown(path: tuple[str, ...]) -> str:
    """A path in quotes, cut if it is absurdly long."""
    return _escaped("/".join(path))


def _escaped(text: str) -> str:
    """The text in quotes, without characters that messages cannot hold, such as half of a surrogate pair."""
    return json.dumps(text[:_LONGEST_SHOWN], ensure_ascii=not text.isprintable())
