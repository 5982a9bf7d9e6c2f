"""Ranks of a gang's members, so that neighbours in the topology tree get neighbouring ranks.

The master is 0. The others follow by their distance from it, in edges of the tree: its node, its rack, and so on. What
is equally far is not mixed: members of one far rack follow one another, and in it those of one node. Of domains that
are equally far, the one with the first member by name goes first; on a node, members go by name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

Path = tuple[str, ...]
"""Names of the domains that a node is in, from the top of the tree to right above the node."""

MASTER: Final = "master"
"""What the name of a master has in it."""

_DIGITS: Final = re.compile(r"([0-9]+)")


def natural_order(name: str) -> list[str | int]:
    """A key that sorts job-2 before job-10: texts and numbers by turns, the name itself at the end."""
    parts: list[str | int] = list(_DIGITS.split(name))
    parts[1::2] = map(int, parts[1::2])
    parts += (-1, name)
    return parts


def ranks(members: Sequence[tuple[str, str]], paths: Mapping[str, Path]) -> list[int]:
    """The rank of each member, in the order in which they were given: 0 to len(members) - 1, each once.

    `members` are pairs of pod name and node name. A node without a path is outside of the tree, and far from all
    others. The master is the first by name with "master" in it, or else the first of all.
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
    """For each node a key: its distance from the master's, then which of the domains that are as far it is in.

    `nodes` are in the order of the members' names. Domains are numbered by the first time they come up in it.
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
            distance = 0 if node == master else 2 * longest + 3  # beyond all that are in the tree
            keys[node] = (distance, turn)
            continue
        domains = [first.setdefault(path[: depth + 1], turn) for depth in range(len(path))]
        keys[node] = (_edges(master, home, node, path), *domains, turn)
    return keys


def _edges(master: str, home: Path | None, node: str, path: Path) -> int:
    """Between two nodes, over the lowest domain that both are in."""
    if node == master:
        return 0
    if home is None:
        return len(path) + 1
    shared = 0
    while shared < min(len(home), len(path)) and home[shared] == path[shared]:
        shared += 1
    return len(home) + len(path) + 2 - 2 * shared
