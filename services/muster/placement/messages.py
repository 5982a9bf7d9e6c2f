"""Decodes and validates solve requests; encodes answers."""

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
from muster.placement.solve.instance import Answer, PartiallyPlaced, Placed
from muster.placement.state.trees import Trees
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.errors import RpcError
from muster.rpc.explanation_codec import encode_explanation
from muster.rpc.topology_codec import UnknownPolicy, decode_constraint
from muster.topology.constraints import contradictions

_Outcome = pb.GroupResult.Outcome


def read_groups(request: pb.SolveRequest) -> list[SolveGroup]:
    """Groups to place. Raises RpcError INVALID_ARGUMENT."""
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
            raise _invalid(f"group {group.id!r} has no gangs; list the gangs to place together")
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
    """Check that trees exist and constraints can be met. Raises RpcError INVALID_ARGUMENT."""
    for gang in (gang for group in groups for gang in group.gangs if gang.constraints):
        tree = trees.get(gang.tree)
        if tree is None:
            raise _invalid(f"gang {gang.id!r}: tree {gang.tree!r} is unknown at this revision; {_known(trees.names)}")
        placed = sum(pods.count for pods in gang.placed)
        wanted = sum(role.wanted for role in gang.roles) + placed
        problem = _contradiction(gang.constraints, tree.level_names, gang.minimum + placed, wanted)
        if problem:
            raise _invalid(f"gang {gang.id!r}: {problem}")


@lru_cache(maxsize=4096)
def _contradiction(constraints: tuple[LevelConstraint, ...], levels: tuple[str, ...], minimum: int, wanted: int) -> str:
    """The first contradiction; cached, since many gangs of a queue have the same constraints."""
    return next(iter(contradictions(constraints, levels, minimum, wanted)), "")


def _known(names: Sequence[str]) -> str:
    if not names:
        return "no tree is known; leave the tree empty to place on nodes alone"
    return f"known trees: {', '.join(map(repr, names))}"


def read_nominated(request: pb.SolveRequest) -> list[NominatedCapacity]:
    """Nominated capacity. Raises RpcError INVALID_ARGUMENT."""
    for nominated in request.nominated:
        for each in nominated.amounts:
            if not 0 <= each.amount <= LARGEST_AMOUNT:
                raise _invalid(
                    f"{each.amount} of {each.name!r} cannot be nominated on node {nominated.node!r}; "
                    f"name an amount from 0 to {LARGEST_AMOUNT}"
                )
    return [
        NominatedCapacity(nominated.node, tuple((each.name, each.amount) for each in nominated.amounts))
        for nominated in request.nominated
    ]


def read_potential_victims(request: pb.SolveRequest) -> list[PotentialVictim]:
    """Potential victims. Raises RpcError INVALID_ARGUMENT."""
    if request.potential_victims and len(request.groups) > 1:
        raise _invalid(
            f"{len(request.groups)} groups, but potential victims are supported for one; send one group per request"
        )
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
    """Ids of all pod classes in the request."""
    named = {role.class_id for group in groups for gang in group.gangs for role in gang.roles}
    named.update(reservation.class_id for reservation in request.reservations)
    named.update(pods.class_id for gang in request.potential_victims for pods in gang.pods)
    return named


def check_known(named: Collection[str], known: Collection[str]) -> None:
    """Check that all classes are known. Raises RpcError FAILED_PRECONDITION."""
    unknown = [class_id for class_id in named if class_id not in known]
    if unknown:
        raise RpcError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"pod class {min(unknown)!r} is unknown at this revision; request the revision of its first pod",
        )


def write_answer(response: pb.SolveResponse, group: SolveGroup, answer: Answer) -> None:
    """Append a result to the response."""
    result = response.results.add(id=group.id)
    match answer:
        case Placed(assignments, victims):
            result.outcome = _Outcome.OUTCOME_PLACED
            write_assignments(result, assignments)
            for gang in victims:
                _write_victim(result, gang)
        case PartiallyPlaced(assignments, explanation):
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


def _write_victim(result: pb.GroupResult, gang: VictimGang) -> None:
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
        raise _invalid(f"{what} {twice!r} is listed twice; list each once")
    if "" in ids:
        raise _invalid(f"a {what} has an empty id; give each a unique id")


def _invalid(message: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, message)
