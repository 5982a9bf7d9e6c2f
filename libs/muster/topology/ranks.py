"""Ranks of a gang's members: members that are near each other in the topology tree get consecutive ranks.

The master has rank 0. The others are ordered by their distance from it in edges of the tree: same node, same rack, and
so on. Members of one domain stay together: members of one distant rack have consecutive ranks, and among them those of
one node. Of equally distant domains, the one with the first member by name comes first; on a node, the order is by
name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

Path = tuple[str, ...]
"""Names of the domains of a node, from the top of the tree to the level above the nodes."""

MASTER: Final = "master"
"""Part of the name of a master."""

_DIGITS: Final = re.compile(r"([0-9]+)")


def natural_order(name: str) -> list[str | int]:
    """A sort key that puts job-2 before job-10: texts and numbers alternate, and the name itself is last."""
    parts: list[str | int] = list(_DIGITS.split(name))
    parts[1::2] = map(int, parts[1::2])
    parts += (-1, name)
    return parts


def ranks(members: Sequence[tuple[str, str]], paths: Mapping[str, Path]) -> list[int]:
    """The rank of each member in the order given: a permutation of 0 to len(members) - 1.

    `members` are pairs of pod name and node name. A node without a path is outside of the tree and farther away than
    all others. The master is the first by name whose name contains "master", or else the first of all.
    """
    order = sorted(range(len(members)), key=[natural_order(name) for name, _ in members].__getitem__)
    master = next((at for at in order if MASTER in members[at][0]), order[0] if order else None)
    if master is None:
        return []
    far = _distances(members[master][1], [members[at][1] for at in order], paths)
    turns = {node: turn for turn, node in enumerate(sorted(far, key=far.__getitem__))}
    order.remove(master)
    order.sort(key=[turns[node] for _, node in members].__getitem__)  # stable: by name on each node
    found = [0] * len(members)
    for rank, at in enumerate((master, *order)):
        found[at] = rank
    return found


def _distances(master: str, nodes: Sequence[str], paths: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
    """A sort key for each node: its distance from the master's node, then its domains.

    `nodes` are in the order of the members' names. Domains are numbered by their first occurrence in that order.
    """
    first: dict[Path | str, int] = {}
    keys: dict[str, tuple[int, ...]] = {}
    longest = max((len(paths.get(node, ())) for node in nodes), default=0)
    home = paths.get(master)
    for turn, node in enumerate(nodes):
        if node in keys:
            continue
        path = paths.get(node)
        if path is None:
            distance = 0 if node == master else 2 * longest + 3  # farther than any node of the tree
            keys[node] = (distance, turn)
            continue
        domains = [first.setdefault(path[: depth + 1], turn) for depth in range(len(path))]
        keys[node] = (_edges(master, home, node, path), *domains, turn)
    return keys


def _edges(master: str, home: Path | None, node: str, path: Path) -> int:
    """Edges between two nodes, through the lowest domain that contains both."""
    if node == master:
        return 0
    if home is None:
        return len(path) + 1
    shared = 0
    while shared < min(len(home), len(path)) and home[shared] == path[shared]:
        shared += 1
    return len(home) + len(path) + 2 - 2 * shared
