"""Solve requests as values, checked; answers as messages."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain

import grpc

from muster.gangs.capacity import LARGEST_AMOUNT
from muster.gangs.facts import LevelConstraint
from muster.gangs.solve import (
    Assignment,
    NominatedCapacity,
    PodsOnNode,
    PotentialVictim,
    Role,
    SolveGang,
    SolveGroup,
    VictimGang,
)
from muster.placement.solve.instance import Answer, PartlyPlaced, Placed
from muster.placement.state.trees import Trees
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.errors import RpcError
from muster.rpc.explanation_codec import encode_explanation
from muster.rpc.topology_codec import UnknownPolicy, decode_constraint
from muster.topology.constraints import contradictions

_Outcome = pb.GroupResult.Outcome


def read_groups(request: pb.SolveRequest) -> list[SolveGroup]:
    """What is to be placed. Raises RpcError INVALID_ARGUMENT."""
    groups = [
        SolveGroup(
            group.id,
            tuple(map(_read_gang, group.gangs)),
            group.partial,
        )
        for group in request.groups
    ]
    _check_unique("group", [group.id for group in groups])
    _check_unique("gang", [gang.id for group in groups for gang in group.gangs])
    for group in groups:
        if not group.gangs:
            raise _invalid(f"group {group.id!r} has no gangs; name those that are to be placed together")
        for gang in group.gangs:
            _check_gang(gang)
    _check_unique("reserved pod", list(chain.from_iterable(each.pod_uids for each in request.reservations)))
    return groups


def _read_gang(gang: pb.Gang) -> SolveGang:
    try:
        constraints = tuple(map(decode_constraint, gang.constraints))
    except UnknownPolicy as error:
        raise _invalid(f"gang {gang.id!r}: {error}") from None
    return SolveGang(
        gang.id,
        gang.minimum,
        tuple(Role(role.class_id, role.wanted) for role in gang.roles),
        gang.tree,
        constraints,
        tuple(PodsOnNode(pods.node, pods.class_id, pods.count) for pods in gang.placed if pods.count),
        tuple(gang.avoided),
    )


def check_constraints(groups: Iterable[SolveGroup], trees: Trees) -> None:
    """Trees must be known, and constraints must be such that they can be met. Raises RpcError INVALID_ARGUMENT."""
    for gang in (gang for group in groups for gang in group.gangs if gang.constraints):
        tree = trees.get(gang.tree)
        if tree is None:
            raise _invalid(f"gang {gang.id!r}: there is no tree {gang.tree!r} at this revision; {_told(trees.names)}")
        placed = sum(pods.count for pods in gang.placed)
        wanted = sum(role.wanted for role in gang.roles) + placed
        problem = _problem(gang.constraints, tree.level_names, gang.minimum + placed, wanted)
        if problem:
            raise _invalid(f"gang {gang.id!r}: {problem}")


@lru_cache(maxsize=4096)
def _problem(constraints: tuple[LevelConstraint, ...], levels: tuple[str, ...], minimum: int, wanted: int) -> str:
    """The first thing that contradicts something; a queue of gangs that want the same is asked about once."""
    return next(iter(contradictions(constraints, levels, minimum, wanted)), "")


def _told(names: Sequence[str]) -> str:
    if not names:
        return "there are none but the nodes themselves (leave the tree empty)"
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(map(repr, names))}"


def read_nominated(request: pb.SolveRequest) -> list[NominatedCapacity]:
    """What is kept for others. Raises RpcError INVALID_ARGUMENT."""
    for kept in request.nominated:
        for each in kept.amounts:
            if not 0 <= each.amount <= LARGEST_AMOUNT:
                raise _invalid(
                    f"{each.amount} of {each.name!r} cannot be nominated on node {kept.node!r}; "
                    f"name an amount from 0 to {LARGEST_AMOUNT}"
                )
    return [
        NominatedCapacity(kept.node, tuple((each.name, each.amount) for each in kept.amounts))
        for kept in request.nominated
    ]


def read_potential_victims(request: pb.SolveRequest) -> list[PotentialVictim]:
    """What may be removed. Raises RpcError INVALID_ARGUMENT."""
    if request.potential_victims and len(request.groups) > 1:
        raise _invalid(f"{len(request.groups)} groups, but what may be removed may be for one only; ask for each alone")
    _check_unique("potential victim", [gang.id for gang in request.potential_victims])
    return [
        PotentialVictim(
            gang.id,
            gang.level,
            gang.spare,
            tuple(PodsOnNode(pods.node, pods.class_id, pods.count) for pods in gang.pods if pods.count),
        )
        for gang in request.potential_victims
    ]


def classes_of(request: pb.SolveRequest, groups: Iterable[SolveGroup]) -> set[str]:
    """Ids of all classes that the request names."""
    named = {role.class_id for group in groups for gang in group.gangs for role in gang.roles}
    named.update(reservation.class_id for reservation in request.reservations)
    named.update(pods.class_id for gang in request.potential_victims for pods in gang.pods)
    return named


def check_known(named: Collection[str], known: Collection[str]) -> None:
    """All classes named must be known. Raises RpcError FAILED_PRECONDITION."""
    unknown = [class_id for class_id in named if class_id not in known]
    if unknown:
        raise RpcError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"pod class {min(unknown)!r} is unknown at this revision; ask for the revision that brought its first pod",
        )


def write_answer(response: pb.SolveResponse, group: SolveGroup, answer: Answer) -> None:
    """Add a result to the response."""
    result = response.results.add(id=group.id)
    match answer:
        case Placed(assignments, removed):
            result.outcome = _Outcome.OUTCOME_PLACED
            write_assignments(result, assignments)
            for gang in removed:
                _write_removed(result, gang)
        case PartlyPlaced(assignments, explanation):
            result.outcome = _Outcome.OUTCOME_PARTIAL
            write_assignments(result, assignments)
            result.explanation.CopyFrom(encode_explanation(explanation))
        case _:
            result.outcome = _Outcome.OUTCOME_INFEASIBLE if answer.proved else _Outcome.OUTCOME_NOT_FOUND
            result.explanation.CopyFrom(encode_explanation(answer.explanation))


def write_assignments(result: pb.GroupResult, assignments: Iterable[Assignment]) -> None:
    add = result.assignments.add
    for assignment in assignments:
        add(gang=assignment.gang, role=assignment.role, node=assignment.node, count=assignment.count)


def _write_removed(result: pb.GroupResult, gang: VictimGang) -> None:
    add = result.victims.add(id=gang.id, whole=gang.whole).pods.add
    for pods in gang.pods:
        add(node=pods.node, class_id=pods.class_id, count=pods.count)


def _check_gang(gang: SolveGang) -> None:
    wanted = sum(role.wanted for role in gang.roles)
    for index, role in enumerate(gang.roles):
        if not role.wanted:
            raise _invalid(f"gang {gang.id!r}: role {index} wants 0 members; leave it out or ask for at least 1")
    if not wanted:
        raise _invalid(f"gang {gang.id!r} has no members; give it at least one role")
    if not 1 <= gang.minimum <= wanted:
        raise _invalid(
            f"gang {gang.id!r}: minimum {gang.minimum} is out of range; it wants {wanted} members, "
            f"so the minimum is from 1 to {wanted}"
        )


def _check_unique(what: str, ids: Iterable[str]) -> None:
    ids = list(ids)
    if len(set(ids)) != len(ids):
        twice = next(name for name, count in Counter(ids).items() if count > 1)
        raise _invalid(f"{what} {twice!r} is named twice; name each once")
    if "" in ids:
        raise _invalid(f"a {what} has an empty id; every one needs an id of its own")


def _invalid(message: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, message)
