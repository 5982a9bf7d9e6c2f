"""Validates solve requests against the mirrored cluster: pod classes, topology trees and constraints."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import grpc

from muster.gangs.facts import LevelConstraint
from muster.gangs.solve import SolveGroup, SolveRequest
from muster.placement.state.trees import Trees
from muster.rpc.errors import RpcError
from muster.rpc.solve_codec import invalid_argument
from muster.topology.constraints import contradictions


def class_ids(request: SolveRequest) -> set[str]:
    """Ids of all pod classes that the request names."""
    named = {role.class_id for group in request.groups for gang in group.gangs for role in gang.roles}
    named.update(reservation.class_id for reservation in request.reservations)
    named.update(pods.class_id for gang in request.potential_victims for pods in gang.pods)
    return named


def check_classes(class_ids: Collection[str], known: Collection[str]) -> None:
    """All pod classes must be known. Raises RpcError FAILED_PRECONDITION."""
    unknown = [class_id for class_id in class_ids if class_id not in known]
    if unknown:
        raise RpcError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"pod class {min(unknown)!r} is unknown at this revision; request the revision of its first pod",
        )


def check_constraints(groups: Iterable[SolveGroup], trees: Trees) -> None:
    """Trees must be known, and the constraints on them satisfiable. Raises RpcError INVALID_ARGUMENT."""
    for gang in (gang for group in groups for gang in group.gangs if gang.constraints):
        tree = trees.get(gang.tree)
        if tree is None:
            known = _known(trees.names)
            raise invalid_argument(f"gang {gang.id!r}: tree {gang.tree!r} is unknown at this revision; {known}")
        placed = sum(pods.count for pods in gang.placed)
        wanted = sum(role.wanted for role in gang.roles) + placed
        problem = _first_contradiction(gang.constraints, tree.level_names, gang.minimum + placed, wanted)
        if problem:
            raise invalid_argument(f"gang {gang.id!r}: {problem}")


@lru_cache(maxsize=4096)
def _first_contradiction(
    constraints: tuple[LevelConstraint, ...], levels: tuple[str, ...], minimum: int, wanted: int
) -> str:
    """Cached, because a queue often holds many gangs with the same constraints."""
    return next(iter(contradictions(constraints, levels, minimum, wanted)), "")


def _known(names: Sequence[str]) -> str:
    if not names:
        return "no tree is known; leave the tree empty to place on nodes alone"
    return f"known trees: {', '.join(map(repr, names))}"
