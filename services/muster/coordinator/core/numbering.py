"""Ranks of a gang's members: given when it is permitted, kept as long as the member is there, and then given anew."""

from collections.abc import Iterable, Iterator
from itertools import count

from muster.coordinator.core.gang import Gang
from muster.coordinator.core.knowledge import Knowledge
from muster.topology.ranks import Path, natural_order, ranks

Ranks = tuple[tuple[str, int], ...]
"""Members' uids and ranks, by rank."""


def numbered(gang: Gang, knowledge: Knowledge) -> Ranks:
    """Ranks for all members that have a place. Those that have one keep it; later members get the lowest that are free,
    by name. A gang of one needs none.
    """
    kept = still_ranked(gang)
    places = _places(gang)
    if not kept:
        return _from_the_start(gang, places, knowledge) if len(places) > 1 else ()
    new = sorted(places.keys() - dict(kept).keys(), key=lambda uid: natural_order(gang.pods[uid].name))
    return _in_order([*kept, *zip(new, _free({rank for _, rank in kept}), strict=False)])


def still_ranked(gang: Gang) -> Ranks:
    """Those of the recorded ranks whose members are there; a rank is free when its pod has left its node."""
    recorded = gang.record.ranks if gang.record is not None else ()
    return tuple((uid, rank) for uid, rank in recorded if _is_there(gang, uid))


def _is_there(gang: Gang, uid: str) -> bool:
    return any(uid in where for where in (gang.bound, gang.seats, gang.acked, gang.waiting, gang.leaving))


def ranked_on_nodes(gang: Gang) -> Ranks:
    """Those of the recorded ranks whose members are on a node yet: they may stay there after all."""
    return tuple((uid, rank) for uid, rank in still_ranked(gang) if uid in gang.bound or uid in gang.leaving)


def _places(gang: Gang) -> dict[str, str]:
    """Node of each member that has one or was promised one, by uid; "" where it lost that."""
    places = {uid: gang.pods[uid].node for uid in gang.bound}
    places.update(dict.fromkeys(gang.lost, ""))
    places.update((seat.uid, seat.node) for seat in (*gang.outstanding, *gang.acked.values()))
    return places


def _from_the_start(gang: Gang, places: dict[str, str], knowledge: Knowledge) -> Ranks:
    members = [(gang.pods[uid].name, node) for uid, node in places.items()]
    found = ranks(members, _paths(gang, set(places.values()), knowledge))
    return _in_order(zip(places, found, strict=True))


def _paths(gang: Gang, names: Iterable[str], knowledge: Knowledge) -> dict[str, Path]:
    trees, nodes = knowledge.trees, knowledge.ledger.nodes
    tree = trees.get(gang.facts.tree if gang.facts is not None else "")
    if tree is None:
        return {}
    found = ((name, trees.above(tree, nodes[name])) for name in names if name in nodes)
    return {name: path for name, path in found if path is not None}


def _free(taken: set[int]) -> Iterator[int]:
    return (rank for rank in count() if rank not in taken)


def _in_order(pairs: Iterable[tuple[str, int]]) -> Ranks:
    return tuple(sorted(pairs, key=lambda pair: pair[1]))
